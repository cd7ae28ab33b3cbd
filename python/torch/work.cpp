/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posted work.  What it needs lives in an Operation, which outlives the work if the program drops it
 * before the end.  The end of an operation is told by weft_work_on_done, in a thread that must not
 * wait: what follows (futures, their callbacks, tensors that Python owns) runs in threads of the
 * adapter.
 */
#include "backend.h"

#include <condition_variable>
#include <deque>
#include <thread>
#include <unistd.h>

namespace weft_torch
{

/* ---- threads that may wait ---- */

/*
 * There is always a thread for what is queued: one that is in a callback of Python may wait for a
 * future that only the next in the queue completes.  Threads and queue live as long as the process.
 */
struct Pool {
    std::mutex lock;
    std::condition_variable more, quiet;
    std::deque<std::function<void()>> queue;
    int threads = 0, idle = 0;
    bool ended = false;

    void push(std::function<void()> f)
    {
        std::lock_guard<std::mutex> guard(lock);
        queue.push_back(std::move(f));
        if (ended)
            return; /* kept for ever: what it would free may be Python's, which is gone */
        if ((int)queue.size() > idle) {
            threads++;
            std::thread([this] { loop(); }).detach();
        } else {
            more.notify_one();
        }
    }

    void loop()
    {
        std::unique_lock<std::mutex> guard(lock);
        for (;;) {
            while (queue.empty() || ended) {
                idle++;
                quiet.notify_all();
                more.wait(guard);
                idle--;
            }
            auto f = std::move(queue.front());
            queue.pop_front();
            guard.unlock();
            f();
            f = nullptr; /* frees what it holds without the lock */
            guard.lock();
        }
    }

    /* Lets what is queued come to its end, for a while; nothing is begun afterwards. */
    void end()
    {
        std::unique_lock<std::mutex> guard(lock);
        quiet.wait_for(guard, std::chrono::seconds(5),
                       [this] { return queue.empty() && idle == threads; });
        ended = true;
    }
};

static Pool *pool_of_process()
{
    static std::mutex lock;
    static Pool *pool;
    static pid_t owner; /* a child after fork has none of its parent's threads */
    std::lock_guard<std::mutex> guard(lock);
    if (owner != getpid()) {
        pool = new Pool;
        owner = getpid();
    }
    return pool;
}

void run_later(std::function<void()> f)
{
    pool_of_process()->push(std::move(f));
}

void end_threads()
{
    pool_of_process()->end();
}

/* ---- operations ---- */

Operation::~Operation()
{
    for (weft_work *work : works)
        weft_release(work);
}

bool Operation::over() const
{
    for (const weft_work *work : works)
        if (weft_work_status(work) == WEFT_IN_PROGRESS)
            return false;
    return true;
}

weft_status Operation::outcome(std::string *text) const
{
    for (const weft_work *work : works) {
        weft_status status = weft_work_status(work);
        if (status < 0) {
            *text = weft_work_error(work);
            return status;
        }
    }
    return WEFT_OK;
}

/* Tensors of inference mode may only be written to in it, and others may be as well. */
void Operation::settle()
{
    c10::InferenceMode inference;
    for (auto &copy : after)
        copy();
    after.clear();
}

/* Calls f in a thread of the adapter when all works are over. */
static void when_over(const std::shared_ptr<Operation> &operation, std::function<void()> f)
{
    struct Count {
        std::atomic<size_t> left;
        std::function<void()> f;
    };
    auto *count = new Count{{operation->works.size()}, std::move(f)};
    auto done = [](void *argument, weft_status) {
        auto *c = (Count *)argument;
        if (c->left.fetch_sub(1, std::memory_order_acq_rel) > 1)
            return;
        run_later(std::move(c->f));
        delete c;
    };
    auto works = operation->works; /* the last one may end, and drop the operation, in this loop */
    if (works.empty())
        run_later(std::move(count->f)), delete count;
    for (weft_work *work : works)
        if (weft_work_on_done(work, done, count) < 0)
            done(count, WEFT_OK); /* told before: it is over */
}

/* ---- works ---- */

WeftWork::WeftWork(int rank, c10d::OpType type, const char *title, const Tensors &in)
    : Work(rank, type, titled(title), std::optional<Tensors>(in))
{
}

WeftWork::~WeftWork()
{
    if (operation->over())
        return;
    auto dropped = operation;
    when_over(dropped, [dropped] {
        std::string text;
        if (dropped->outcome(&text) >= 0)
            dropped->settle();
    });
}

void WeftWork::conclude()
{
    std::lock_guard<std::mutex> guard(end_lock);
    if (done())
        return;
    std::string text;
    std::exception_ptr problem;
    weft_status status = operation->outcome(&text);
    try {
        if (status < 0)
            fail_as(status, text.c_str(), operation->limit);
        operation->settle();
    } catch (...) {
        problem = std::current_exception();
    }
    operation->keep.clear();
    finish(problem);
}

bool WeftWork::done()
{
    std::lock_guard<std::mutex> guard(mutex_);
    return completed_;
}

bool WeftWork::isCompleted()
{
    if (done())
        return true;
    for (weft_work *work : operation->works)
        if (weft_work_test(work) == WEFT_IN_PROGRESS)
            return false;
    conclude();
    return true;
}

bool WeftWork::wait(Millis timeout)
{
    int64_t limit = timeout.count() > 0 ? timeout.count() : WEFT_FOREVER;
    heed_signals();
    for (weft_work *work : operation->works) {
        if (done())
            break;
        weft_status status = weft_work_wait(work, limit);
        if (status < 0 && weft_work_status(work) == WEFT_IN_PROGRESS) {
            raise_interrupt();
            fail_as(status, weft_last_error(), timeout);
        }
        if (status < 0)
            break;
    }
    /* After a failure the others may still be under way; they fail for the same reason. */
    for (weft_work *work : operation->works)
        if (weft_work_status(work) == WEFT_IN_PROGRESS)
            weft_work_wait(work, WEFT_FOREVER);
    conclude();
    std::lock_guard<std::mutex> guard(mutex_);
    if (exception_)
        std::rethrow_exception(exception_);
    return true;
}

void WeftWork::abort()
{
    for (weft_work *work : operation->works)
        if (weft_work_cancel(work) < 0 && weft_work_status(work) == WEFT_IN_PROGRESS)
            fail(std::string("[weft] ") + weft_last_error());
}

int WeftWork::sourceRank() const
{
    return operation->works.empty() ? -1 : weft_work_source(operation->works[0]);
}

c10::IValue WeftWork::answer() const
{
    if (!lists)
        return c10::IValue(outs);
    std::vector<Tensors> all;
    size_t each = outs.size() / lists;
    for (size_t i = 0; i < lists; i++)
        all.emplace_back(outs.begin() + (ptrdiff_t)(i * each),
                         outs.begin() + (ptrdiff_t)((i + 1) * each));
    return c10::IValue(all);
}

/* Small operations are tried at once: most of them are over before a thread could be woken. */
static const size_t SMALL = 32 << 10;

c10::intrusive_ptr<c10::ivalue::Future> WeftWork::getFuture()
{
    std::lock_guard<std::mutex> guard(future_lock);
    if (future)
        return future;
    auto promise =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future = promise;
    auto self = c10::intrusive_ptr<WeftWork>::unsafe_reclaim_from_nonowning(this);
    auto complete = [self, promise] {
        self->conclude();
        if (auto problem = self->exception())
            promise->setError(problem);
        else
            promise->markCompleted(self->answer());
    };
    if (operation->bytes <= SMALL ? isCompleted() : operation->over())
        complete();
    else
        when_over(operation, complete);
    return future;
}

} // namespace weft_torch
