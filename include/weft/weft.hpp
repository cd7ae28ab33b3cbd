/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft for C++17 and later: handles that release themselves, errors that are exceptions, spans
 * instead of pointers with counts.  A thin header over weft/weft.h; every object gives its C handle
 * by get(), so that the two can be mixed.
 *
 *     weft::world world;                               // meets; leaves at the end of the block
 *     std::vector<float> x(1000, world.rank());
 *     world.all_reduce(x, weft::sum);                  // in place
 *     weft::shared<float> mine(world, 1024);           // symmetric memory, mapped by all ranks
 *     mine.peer((world.rank() + 1) % world.size())[0];  // the neighbour's memory, no copy
 *
 * A call that fails throws weft::error, or the class of its cause.  A program that catches it reads
 * status(), scope() and what(), which names the rank, the operation and the likely cause.
 */
#ifndef WEFT_WEFT_HPP
#define WEFT_WEFT_HPP

#include "weft/weft.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft
{

/* ---- errors ---- */

class error : public std::runtime_error
{
  public:
    error(weft_status status, const std::string &text) : std::runtime_error(text), status_(status)
    {
    }
    weft_status status() const noexcept
    {
        return status_;
    }
    /* What is still usable. */
    weft_scope_of_error scope() const noexcept
    {
        return weft_status_scope(status_);
    }

  private:
    weft_status status_;
};

/* The class of one cause, which is a kind of Base. */
template <weft_status Cause, class Base = error> struct error_of : Base {
    using Base::Base;
    static constexpr weft_status cause = Cause;
};
/* A rank is gone: it died, or it left. */
struct peer_error : error {
    using error::error;
};
using timeout_error = error_of<WEFT_ERR_TIMEOUT>;
using mismatch_error = error_of<WEFT_ERR_MISMATCH>;
using revoked_error = error_of<WEFT_ERR_REVOKED>;
using peer_dead_error = error_of<WEFT_ERR_PEER_DEAD, peer_error>;
using peer_left_error = error_of<WEFT_ERR_PEER_LEFT, peer_error>;

/* Throws that of these classes whose cause the status is, or a plain error. */
template <class... Kinds>
[[noreturn]] void raise_one_of(weft_status status, const std::string &text)
{
    ((status == Kinds::cause ? throw Kinds(status, text) : void()), ...);
    throw error(status, text);
}

/* Throws the exception of a status, with the thread's last error, which counts as dealt with. */
[[noreturn]] inline void raise(weft_status status)
{
    std::string text = weft_last_error();
    if (text.empty())
        text = weft_strerror(status);
    weft_clear_error();
    raise_one_of<timeout_error, mismatch_error, revoked_error, peer_dead_error, peer_left_error>(
        status, text);
}

/* For calls of the C interface: weft::check(weft_fill(x, 1)). */
inline void check(weft_status status)
{
    if (status < WEFT_OK)
        raise(status);
}

template <class T> T *check(T *object)
{
    if (!object)
        raise(weft_last_status() < WEFT_OK ? weft_last_status() : WEFT_ERR_INVALID_ARG);
    return object;
}

/* ---- spans and element types ---- */

/* A pointer and a count: of a vector, an array, a std::span, or anything with data() and size(). */
template <class T> class span
{
  public:
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size)
    {
    }
    template <class C,
              class = std::enable_if_t<std::is_convertible_v<
                  std::remove_pointer_t<decltype(std::data(std::declval<C &>()))> (*)[], T (*)[]>>>
    constexpr span(C &&items) noexcept : data_(std::data(items)), size_(std::size(items))
    {
    }

    constexpr T *data() const noexcept
    {
        return data_;
    }
    constexpr std::size_t size() const noexcept
    {
        return size_;
    }
    constexpr bool empty() const noexcept
    {
        return size_ == 0;
    }
    constexpr T &operator[](std::size_t i) const
    {
        return data_[i];
    }
    constexpr T *begin() const noexcept
    {
        return data_;
    }
    constexpr T *end() const noexcept
    {
        return data_ + size_;
    }
    constexpr span sub(std::size_t from, std::size_t count) const
    {
        return {data_ + from, count};
    }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* The dtype of a C++ type.  16- and 8-bit floats have no type of their own: bf16 and its like give
 * their bits a name, and arrays of them are converted by the C interface. */
struct bf16 {
    std::uint16_t bits;
};
struct f16 {
    std::uint16_t bits;
};

template <class T> constexpr weft_dtype dtype_of() noexcept
{
    using U = std::remove_cv_t<T>;
    static_assert(std::is_arithmetic_v<U> || std::is_same_v<U, bf16> || std::is_same_v<U, f16>,
                  "weft has no dtype for this type");
    if constexpr (std::is_same_v<U, bf16>) {
        return WEFT_BF16;
    } else if constexpr (std::is_same_v<U, f16>) {
        return WEFT_F16;
    } else if constexpr (std::is_same_v<U, bool>) {
        return WEFT_BOOL;
    } else if constexpr (std::is_floating_point_v<U>) {
        static_assert(sizeof(U) == 4 || sizeof(U) == 8, "weft has no long double");
        return sizeof(U) == 4 ? WEFT_F32 : WEFT_F64;
    } else {
        constexpr weft_dtype of_size[2][4] = {{WEFT_U8, WEFT_U16, WEFT_U32, WEFT_U64},
                                              {WEFT_I8, WEFT_I16, WEFT_I32, WEFT_I64}};
        constexpr int size = sizeof(U) < 4 ? sizeof(U) - 1 : sizeof(U) / 8 + 2;
        return of_size[std::is_signed_v<U>][size];
    }
}

inline constexpr weft_reduction sum = WEFT_SUM, avg = WEFT_AVG, product = WEFT_PRODUCT,
                                min = WEFT_MIN, max = WEFT_MAX, bit_and = WEFT_BAND,
                                bit_or = WEFT_BOR, bit_xor = WEFT_BXOR;

/* A limit of time: a duration, or one of the two below. */
class limit
{
  public:
    template <class R, class P>
    limit(std::chrono::duration<R, P> time)
        : ms_(std::chrono::duration_cast<std::chrono::milliseconds>(time).count())
    {
        ms_ = ms_ < 0 ? 0 : ms_; /* a moment that has passed: one try, not WEFT_FOREVER */
    }
    static limit forever()
    {
        return limit(WEFT_FOREVER);
    }
    static limit of_group()
    {
        return limit(WEFT_DEFAULT);
    }
    std::int64_t ms() const noexcept
    {
        return ms_;
    }

  private:
    explicit limit(std::int64_t ms) : ms_(ms)
    {
    }
    std::int64_t ms_;
};

/* ---- handles ---- */

struct releaser {
    void operator()(void *object) const noexcept
    {
        weft_release(object);
    }
};

/* Owns one reference to an object of weft, as std::unique_ptr does.  Moves, and is not copied. */
template <class T, class Release = releaser> class handle : public std::unique_ptr<T, Release>
{
  public:
    handle() noexcept = default;
    /* Takes over what a call of the C interface has just returned; throws for NULL. */
    explicit handle(T *made) : std::unique_ptr<T, Release>(static_cast<T *>(weft_keep(check(made))))
    {
    }
};

using tensor = handle<weft_tensor>;

/* Opens a scope for the block: temporaries of the C interface live until its end. */
class scope
{
  public:
    scope()
    {
        check(weft_scope_open());
    }
    ~scope()
    {
        weft_scope_close();
    }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
};

struct finisher : releaser {
    void operator()(weft_work *posted) const noexcept
    {
        if (weft_work_status(posted) == WEFT_IN_PROGRESS)
            weft_work_wait(posted, WEFT_DEFAULT);
        releaser::operator()(posted);
    }
};

/*
 * A posted operation.  wait() throws what went wrong.  One that is dropped is waited for first,
 * within the limit of its group, since its operands may go with it; what went wrong is then found
 * by weft_finish.
 */
class work : public handle<weft_work, finisher>
{
  public:
    using handle::handle;

    void wait(limit time = limit::of_group())
    {
        check(weft_work_wait(get(), time.ms()));
    }
    /* Whether it is done; throws if it has failed. */
    bool test()
    {
        weft_status status = weft_work_test(get());
        check(status);
        return status != WEFT_IN_PROGRESS;
    }
    /* Of a receive: the rank that sent. */
    int source() const noexcept
    {
        return weft_work_source(get());
    }
};

/* The element type of a container, as its data() gives it, and without const. */
template <class C>
using value = std::remove_const_t<std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>>;

/* A tensor over memory that the program owns, which outlives the tensor. */
template <class C> tensor wrap(C &&items)
{
    auto *data = const_cast<value<C> *>(std::data(items));
    return tensor(weft_tensor_wrap(dtype_of<value<C>>(), WEFT_CPU, WEFT_SHAPE(std::size(items)),
                                   data, nullptr, nullptr));
}

/* ---- groups ---- */

/* What a group of ranks can do, owned or not.  Operands are containers or spans; results go
 * where the caller says.  One thread at a time may use a group. */
class group_ref
{
  public:
    explicit group_ref(weft_group *group) noexcept : group_(group)
    {
    }

    int rank() const noexcept
    {
        return weft_rank(group_);
    }
    int size() const noexcept
    {
        return weft_size(group_);
    }
    std::string name() const
    {
        return weft_group_name(check(group_));
    }
    span<const int> ranks() const
    {
        return {weft_group_ranks(check(group_)), static_cast<std::size_t>(size())};
    }
    weft_group *get() const noexcept
    {
        return group_;
    }

    void barrier(limit time = limit::of_group()) const
    {
        check(weft_group_barrier(group_, time.ms()));
    }
    /* Ends every wait in the group, on every rank; only shrink and agree work after it. */
    void revoke() const
    {
        check(weft_group_revoke(group_));
    }

    /* In place. */
    template <class C> void all_reduce(C &&x, weft_reduction op = WEFT_SUM) const
    {
        check(weft_all_reduce_ptr(std::data(x), std::data(x), std::size(x), dtype_of<value<C>>(),
                                  op, group_));
    }
    template <class T> T all_reduce_value(T x, weft_reduction op = WEFT_SUM) const
    {
        check(weft_all_reduce_ptr(&x, &x, 1, dtype_of<T>(), op, group_));
        return x;
    }
    template <class C> void broadcast(C &&x, int root) const
    {
        check(weft_broadcast_ptr(std::data(x), std::size(x), dtype_of<value<C>>(), root, group_));
    }
    /* out has the elements of all ranks, one rank after the other. */
    template <class O, class I> void all_gather(O &&out, const I &in) const
    {
        fits<O, I>(std::size(out), std::size(in) * static_cast<std::size_t>(size()), "all_gather");
        check(weft_all_gather_ptr(std::data(out), std::data(in), std::size(in),
                                  dtype_of<value<O>>(), group_));
    }
    template <class C> std::vector<value<C>> all_gather(const C &in) const
    {
        std::vector<value<C>> out(std::size(in) * static_cast<std::size_t>(size()));
        all_gather(out, in);
        return out;
    }
    /* in has elements for every rank, out those for this one. */
    template <class O, class I>
    void reduce_scatter(O &&out, const I &in, weft_reduction op = WEFT_SUM) const
    {
        fits<O, I>(std::size(in), std::size(out) * static_cast<std::size_t>(size()),
                   "reduce_scatter");
        check(weft_reduce_scatter_ptr(std::data(out), std::data(in), std::size(out),
                                      dtype_of<value<O>>(), op, group_));
    }
    /* Part r of in goes to rank r; all parts have the same size. */
    template <class O, class I> void all_to_all(O &&out, const I &in) const
    {
        fits<O, I>(std::size(out), std::size(in), "all_to_all");
        check(weft_all_to_all_into(wrap(out).get(), wrap(in).get(), nullptr, nullptr, group_));
    }
    template <class C> void send(const C &x, int to, int tag = 0) const
    {
        check(weft_send_tag(wrap(x).get(), to, tag, group_));
    }
    template <class C> void recv(C &&x, int from, int tag = 0) const
    {
        check(weft_recv_tag(wrap(x).get(), from, tag, group_));
    }

    /* Posted: the operands are left alone until the work is done, which holds their tensors. */
    template <class C> work all_reduce_start(C &&x, weft_reduction op = WEFT_SUM) const
    {
        tensor t = wrap(x);
        return work(weft_all_reduce_start(t.get(), t.get(), op, group_));
    }
    template <class O, class I> work all_gather_start(O &&out, const I &in) const
    {
        fits<O, I>(std::size(out), std::size(in) * static_cast<std::size_t>(size()),
                   "all_gather_start");
        return work(weft_all_gather_start(wrap(out).get(), wrap(in).get(), group_));
    }
    template <class C> work send_start(const C &x, int to, int tag = 0) const
    {
        return work(weft_send_tag_start(wrap(x).get(), to, tag, group_));
    }
    template <class C> work recv_start(C &&x, int from, int tag = 0) const
    {
        return work(weft_recv_tag_start(wrap(x).get(), from, tag, group_));
    }

  protected:
    weft_group *group_ = nullptr;

  private:
    template <class O, class I>
    static void fits(std::size_t has, std::size_t wanted, const char *what)
    {
        static_assert(std::is_same_v<value<O>, value<I>>, "both operands have one element type");
        if (has != wanted)
            throw error(WEFT_ERR_INVALID_ARG, std::string(what) + ": the larger operand has " +
                                                  std::to_string(has) + " elements, " +
                                                  std::to_string(wanted) + " are needed");
    }
};

/* A group that this object owns. */
class group : public group_ref
{
  public:
    explicit group(weft_group *made) : group_ref(made), owned_(made)
    {
    }

    /* Ranks of one color form a group, ordered by key, then by rank.  With a negative color: no group. */
    static std::optional<group> split(const group_ref &parent, int color, int key = 0)
    {
        weft_group *made = weft_group_split(parent.get(), color, key);
        if (!made && color < 0)
            return std::nullopt;
        return group(made);
    }
    static group of(const group_ref &parent, span<const int> ranks, const char *name = nullptr)
    {
        return group(
            weft_group_new(parent.get(), ranks.data(), static_cast<int>(ranks.size()), name));
    }
    /* The living members, after a death or a revoke. */
    static group shrink(const group_ref &parent)
    {
        return group(weft_group_shrink(parent.get()));
    }

  private:
    handle<weft_group> owned_;
};

/*
 * The world group of this rank: meets the others when it is made and leaves the job at its end.
 * leave() does so earlier and returns the exit status of main.  Objects of weft go before their
 * world, as they do if they are made after it.
 */
class world : public group_ref
{
  public:
    explicit world(const weft_init_opts *opts = nullptr) : group_ref(check(weft_init(opts)))
    {
    }
    world(const world &) = delete;
    world &operator=(const world &) = delete;
    ~world()
    {
        leave();
    }

    int leave() noexcept
    {
        weft_group *group = std::exchange(group_, nullptr);
        return group ? weft_finish(group) : 0;
    }
};

/* ---- symmetric memory ---- */

/*
 * An array of the same size on every rank of a group, and the arrays of all of them.  Making one is
 * collective.  mine() and peer(r) are plain memory: order between ranks comes from barrier, or from
 * signals, which have channels of their own.
 */
template <class T> class shared
{
  public:
    shared(const group_ref &group, std::size_t count)
        : count_(count), memory_(weft_symm_empty(dtype_of<T>(), WEFT_CPU, WEFT_SHAPE(count))),
          symm_(weft_symm_rendezvous(memory_.get(), group.get())), rank_(group.rank())
    {
    }

    span<T> mine() const
    {
        return peer(rank_);
    }
    /* The array of another rank of this host; throws where its memory is out of reach. */
    span<T> peer(int rank) const
    {
        return {static_cast<T *>(check(weft_symm_buffer_ptr(symm_.get(), rank))), count_};
    }
    std::size_t size() const noexcept
    {
        return count_;
    }
    T &operator[](std::size_t i) const
    {
        return mine()[i];
    }

    void barrier(int channel = 0, limit time = limit::of_group()) const
    {
        check(weft_symm_barrier(symm_.get(), channel, time.ms()));
    }
    void put_signal(int rank, int channel = 0, limit time = limit::of_group()) const
    {
        check(weft_symm_put_signal(symm_.get(), rank, channel, time.ms()));
    }
    void wait_signal(int rank, int channel = 0, limit time = limit::of_group()) const
    {
        check(weft_symm_wait_signal(symm_.get(), rank, channel, time.ms()));
    }
    /* For the calls of the C interface. */
    weft_tensor *tensor() const noexcept
    {
        return memory_.get();
    }
    weft_symm *get() const noexcept
    {
        return symm_.get();
    }

  private:
    std::size_t count_;
    handle<weft_tensor> memory_;
    handle<weft_symm> symm_;
    int rank_;
};

/* ---- ranks as threads ---- */

/*
 * Runs body(world) in `ranks` threads, each of which is a rank.  An exception that leaves the body
 * is thrown again here, that of the rank which failed first; the waits of the others end meanwhile.
 */
inline void spawn(int ranks, const std::function<void(world &)> &body)
{
    struct job {
        const std::function<void(world &)> &body;
        std::vector<std::exception_ptr> failed;
    } job{body, std::vector<std::exception_ptr>(ranks > 0 ? static_cast<std::size_t>(ranks) : 0)};
    int status = weft_spawn(
        ranks,
        [](void *argument) -> int {
            auto &job = *static_cast<struct job *>(argument);
            int rank = -1;
            try {
                world all;
                rank = all.rank();
                job.body(all);
                return all.leave();
            } catch (...) {
                if (rank < 0)
                    return 1;
                job.failed[static_cast<std::size_t>(rank)] = std::current_exception();
                return 1000 + rank; /* tells whose exception counts */
            }
        },
        &job);
    if (status >= 1000)
        std::rethrow_exception(job.failed[static_cast<std::size_t>(status - 1000)]);
    if (status)
        raise(status < 0 ? static_cast<weft_status>(status) : static_cast<weft_status>(-status));
}

} /* namespace weft */

#endif
