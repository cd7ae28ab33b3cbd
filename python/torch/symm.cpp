/* SPDX-License-Identifier: Apache-2.0 */
/* Symmetric memory: blocks that PyTorch's tensors live in, and what a group makes of them. */
#include "symm.h"

#if WEFT_TORCH_AT_LEAST(2, 8)
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>
#endif

#include <map>

namespace weft_torch
{

#if WEFT_TORCH_AT_LEAST(2, 8)

using c10d::symmetric_memory::SymmetricMemory;
using c10d::symmetric_memory::SymmetricMemoryAllocator;

/* One allocation; handles are made once for each group and each place in it. */
struct Block {
    weft_tensor *tensor;
    size_t bytes;
    std::map<std::pair<std::string, size_t>, c10::intrusive_ptr<SymmetricMemory>> met;
};

static std::mutex lock;
static std::map<char *, Block> blocks; /* by where they begin */

static void check(weft_status status, Millis limit = Millis(0))
{
    if (status >= 0)
        return;
    raise_interrupt();
    fail_as(status, weft_last_error(), limit);
}

/* The block that holds the address; the lock is held. */
static std::map<char *, Block>::iterator block_at(const void *address)
{
    auto after = blocks.upper_bound((char *)address);
    if (after == blocks.begin())
        return blocks.end();
    auto it = std::prev(after);
    return (char *)address < it->first + std::max<size_t>(it->second.bytes, 1) ? it : blocks.end();
}

/* ---- handles ---- */

class Handle : public SymmetricMemory
{
  public:
    explicit Handle(weft_symm *m) : mem(m)
    {
        weft_symm_describe(mem, &info);
        for (int rank = 0; rank < info.size && far < 0; rank++)
            if (!weft_symm_buffer_ptr(mem, rank))
                far = rank;
        if (far >= 0)
            weft_clear_error(); /* each() says it, to those who ask for addresses */
    }
    ~Handle() override
    {
        weft_release(mem);
    }

    std::vector<void *> get_buffer_ptrs() override
    {
        return each(weft_symm_buffer_ptr);
    }
    std::vector<void *> get_signal_pad_ptrs() override
    {
        return each(weft_symm_signal_pad_ptr);
    }
    void **get_buffer_ptrs_dev() override
    {
        return no_device();
    }
    void **get_signal_pad_ptrs_dev() override
    {
        return no_device();
    }
    size_t get_buffer_size() override
    {
        return info.bytes;
    }
    size_t get_signal_pad_size() /* of the interface in some releases, as get_offset */
    {
        return info.pad_bytes;
    }
    size_t get_offset()
    {
        return info.offset;
    }
    bool has_multicast_support() override
    {
        return false;
    }
    void *get_multicast_ptr() override
    {
        return nullptr;
    }
    int get_rank() override
    {
        return info.rank;
    }
    int get_world_size() override
    {
        return info.size;
    }
    c10::Device get_device()
    {
        return c10::Device(c10::kCPU);
    }
    bool world_within_direct_access()
    {
        return far < 0;
    }

    void barrier(int channel, size_t ms) override
    {
        wait(ms, [&](int64_t limit) { return weft_symm_barrier(mem, channel, limit); });
    }
    void put_signal(int rank, int channel, size_t ms) override
    {
        wait(ms, [&](int64_t limit) { return weft_symm_put_signal(mem, rank, channel, limit); });
    }
    void wait_signal(int rank, int channel, size_t ms) override
    {
        wait(ms, [&](int64_t limit) { return weft_symm_wait_signal(mem, rank, channel, limit); });
    }

  private:
    /* PyTorch makes tensors of these, whatever they are, so there is none that must not be used. */
    std::vector<void *> each(void *(*at)(const weft_symm *, int))
    {
        TORCH_CHECK(far < 0, "weft: the memory of rank ", far, " is on another host and has no ",
                    "address here, so this handle has no buffers; barriers and signals reach it, ",
                    "and a group of this host's ranks alone (new_group) has buffers");
        std::vector<void *> pointers;
        for (int rank = 0; rank < info.size; rank++)
            pointers.push_back(at(mem, rank));
        return pointers;
    }
    [[noreturn]] static void **no_device()
    {
        fail("[weft] symmetric memory of the CPU has no table on a device");
    }
    static void wait(size_t ms, const std::function<weft_status(int64_t)> &call)
    {
        WithoutGil others_go_on;
        heed_signals();
        check(call(ms ? (int64_t)ms : WEFT_DEFAULT), Millis(ms));
    }

    weft_symm *mem;
    weft_symm_info info{};
    int far = -1; /* the first rank whose memory has no address in this process */
};

/* ---- the allocator ---- */

class Allocator : public SymmetricMemoryAllocator
{
  public:
    void *alloc(size_t size, int, const std::optional<std::string> &) override
    {
        weft_shape shape{};
        shape.ndim = 1;
        shape.dim[0] = (int64_t)std::max<size_t>(size, 1);
        auto *tensor = (weft_tensor *)weft_keep(weft_symm_empty(WEFT_U8, WEFT_CPU, shape));
        if (!tensor)
            check(weft_last_status());
        char *begin = (char *)weft_tensor_data(tensor);
        std::lock_guard<std::mutex> guard(lock);
        blocks[begin] = Block{tensor, size, {}};
        return begin;
    }

    void free(void *address) override
    {
        Block block{};
        {
            std::lock_guard<std::mutex> guard(lock);
            auto it = blocks.find((char *)address);
            if (it == blocks.end())
                return;
            block = std::move(it->second);
            blocks.erase(it);
        }
        block.met.clear();
        weft_release(block.tensor);
    }

    size_t get_alloc_size(void *address) override
    {
        std::lock_guard<std::mutex> guard(lock);
        auto it = block_at(address);
        TORCH_CHECK(it != blocks.end(), "weft: this memory is not symmetric");
        return it->second.bytes;
    }

    c10::intrusive_ptr<SymmetricMemory> rendezvous(void *address,
                                                   const std::optional<std::string> &name) override
    {
        TORCH_CHECK_VALUE(name, "weft: a rendezvous needs the name of a group");
        weft_group *group = group_named(*name);
        TORCH_CHECK(group, "weft: the group \"", *name, "\" has no backend weft");
        weft_tensor *whole;
        size_t offset;
        {
            std::lock_guard<std::mutex> guard(lock);
            auto it = block_at(address);
            if (it == blocks.end())
                return nullptr;
            offset = (size_t)((char *)address - it->first);
            auto known = it->second.met.find({*name, offset});
            if (known != it->second.met.end())
                return known->second;
            whole = it->second.tensor;
        }
        auto handle = c10::make_intrusive<Handle>(meet(whole, offset, group));
        std::lock_guard<std::mutex> guard(lock);
        auto it = block_at(address);
        if (it != blocks.end())
            it->second.met[{*name, offset}] = handle;
        return handle;
    }

    bool has_multicast_support(int) override
    {
        return false;
    }
    c10::DeviceType supported_device_type() override
    {
        return c10::kCPU;
    }
    std::string name() override
    {
        return "WEFT";
    }
    bool has_allocation(void *address)
    {
        std::lock_guard<std::mutex> guard(lock);
        return block_at(address) != blocks.end();
    }

  private:
    static weft_symm *meet(weft_tensor *whole, size_t offset, weft_group *group)
    {
        WithoutGil others_go_on;
        heed_signals();
        weft_scope_open();
        weft_tensor *part = offset ? weft_narrow(whole, 0, (int64_t)offset,
                                                 weft_tensor_numel(whole) - (int64_t)offset)
                                   : whole;
        auto *mem = (weft_symm *)weft_keep(weft_symm_rendezvous(part, group));
        weft_scope_close();
        if (!mem)
            check(weft_last_status());
        return mem;
    }
};

weft_tensor *symmetric_view(const at::Tensor &tensor)
{
    weft_tensor *whole;
    int64_t offset;
    {
        std::lock_guard<std::mutex> guard(lock);
        auto it = block_at(tensor.const_data_ptr());
        if (it == blocks.end() || dtype_of(tensor.scalar_type()) == WEFT_DTYPE_COUNT)
            return nullptr;
        whole = it->second.tensor;
        offset = (char *)tensor.const_data_ptr() - it->first;
    }
    TORCH_CHECK(tensor.is_contiguous() && tensor.dim() <= WEFT_MAX_DIMS,
                "weft: operands in symmetric memory must be contiguous");
    weft_shape shape{};
    shape.ndim = (int)tensor.dim();
    for (int i = 0; i < shape.ndim; i++)
        shape.dim[i] = tensor.size(i);
    weft_tensor *bytes = weft_narrow(whole, 0, offset, (int64_t)tensor.nbytes());
    weft_tensor *view = weft_view(weft_view_dtype(bytes, dtype_of(tensor.scalar_type())), shape);
    if (!view)
        check(weft_last_status());
    return view;
}

void forget_handles(const std::string &group)
{
    std::vector<c10::intrusive_ptr<SymmetricMemory>> gone; /* released without the lock */
    std::lock_guard<std::mutex> guard(lock);
    for (auto &[begin, block] : blocks)
        for (auto it = block.met.begin(); it != block.met.end();) {
            if (it->first.first == group) {
                gone.push_back(it->second);
                it = block.met.erase(it);
            } else {
                ++it;
            }
        }
}

void register_symmetric_memory()
{
    auto allocator = c10::make_intrusive<Allocator>();
#if WEFT_TORCH_AT_LEAST(2, 9)
    c10d::symmetric_memory::register_availability("WEFT", allocator);
#endif
    c10d::symmetric_memory::register_allocator(c10::kCPU, allocator);
    register_symmetric_operators();
}

#else

weft_tensor *symmetric_view(const at::Tensor &)
{
    return nullptr;
}

void forget_handles(const std::string &)
{
}

void register_symmetric_memory()
{
}

#endif

} // namespace weft_torch
