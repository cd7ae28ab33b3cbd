/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong, as exceptions of PyTorch; and the names of operations in profiles. */
#include "weft_torch.h"

#include <unordered_map>

namespace weft_torch
{

void fail(const std::string &text)
{
    TORCH_CHECK_WITH(DistBackendError, false, text);
    abort(); /* not reached: tells the compiler so */
}

void fail_as(weft_status status, const char *text, Millis limit)
{
    std::string words = "[weft] ";
    if (status == WEFT_ERR_TIMEOUT) {
        words += "Timed out waiting";
        if (limit.count() > 0)
            words += " " + std::to_string(limit.count()) + "ms";
        words += ": ";
    } else if (status == WEFT_ERR_PEER_DEAD || status == WEFT_ERR_PEER_LEFT) {
        words += "Connection closed by peer: ";
    }
    fail(words + (text && *text ? text : weft_strerror(status)));
}

/* Read for every posted call, written while no group is there. */
static std::string title_name = "weft";
static std::mutex title_lock;
static std::unordered_map<std::string, std::string> titles;

void set_title(const std::string &name)
{
    std::lock_guard<std::mutex> guard(title_lock);
    title_name = name;
}

const char *titled(const char *title)
{
    std::lock_guard<std::mutex> guard(title_lock);
    return titles.try_emplace(title_name + ":" + title, title_name + ":" + title)
        .first->second.c_str();
}

} // namespace weft_torch
