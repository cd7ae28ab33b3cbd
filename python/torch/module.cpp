/* SPDX-License-Identifier: Apache-2.0 */
/* The adapter as a module of Python. */
#include "backend.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;
using weft_torch::WeftBackend;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    auto base = py::module::import("torch._C._distributed_c10d").attr("Backend");
    auto backend =
        py::class_<WeftBackend, c10::intrusive_ptr<WeftBackend>>(m, "ProcessGroupWeft", base);
    backend.def_property_readonly("options", &WeftBackend::options_of);
    backend.def_property_readonly(
        "_handle", [](const c10::intrusive_ptr<WeftBackend> &b) { return (size_t)b->handle(); });
    /* c10d has them for every backend from 2.7 on. */
    backend.def("abort", &WeftBackend::abort, py::call_guard<py::gil_scoped_release>());
    backend.def("shutdown", &WeftBackend::shutdown, py::call_guard<py::gil_scoped_release>());
    backend.def("_set_default_timeout", &WeftBackend::setTimeout,
                py::call_guard<py::gil_scoped_release>()); /* as Gloo's is called */
    m.def(
        "create",
        [](const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, int64_t timeout_ms,
           const std::string &name) {
            return c10::make_intrusive<WeftBackend>(store, rank, size,
                                                    weft_torch::Millis(timeout_ms), name);
        },
        py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout_ms"), py::arg("name"),
        py::call_guard<py::gil_scoped_release>());
    m.def("set_title", &weft_torch::set_title,
          "By what name profiles show the operations of the backend.");
    m.def("end_threads", &weft_torch::end_threads, py::call_guard<py::gil_scoped_release>());
    m.attr("torch_version") = TORCH_VERSION;
    m.attr("weft_version") = weft_version();
    weft_torch::register_symmetric_memory();
}
