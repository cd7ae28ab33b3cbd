/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: include/weft/weft.hpp */
/*
 * The C++ header, each part of it, with ranks as threads.  Prints a line a test, as all programs do.
 */
#include <weft/weft.hpp>

#include <array>
#include <atomic>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

static int failures;

struct failed : std::logic_error {
    using std::logic_error::logic_error;
};

#define EXPECT(condition_) \
    if (!(condition_))     \
    throw failed(std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #condition_)

static void test(const char *name, int ranks, const std::function<void(weft::world &)> &body)
{
    try {
        weft::spawn(ranks, body);
        std::printf("%s threads %d pass\n", name, ranks);
    } catch (const std::exception &error) {
        std::printf("%s threads %d fail: %s\n", name, ranks, error.what());
        failures++;
    }
}

template <class E, class F> static std::string thrown(F &&body)
{
    try {
        body();
    } catch (const E &error) {
        return error.what();
    }
    throw failed("nothing was thrown, or something else");
}

static void collectives(weft::world &world)
{
    int me = world.rank(), n = world.size();
    std::array<double, 3> x{1.0 * me, 2.0 * me, 1};
    world.all_reduce(x);
    EXPECT(x[0] == n * (n - 1) / 2.0 && x[2] == n);
    EXPECT(world.all_reduce_value(std::int64_t{me}, weft::max) == n - 1);

    std::vector<std::uint8_t> note(5, static_cast<std::uint8_t>(me + 7));
    world.broadcast(note, n - 1);
    EXPECT(note[4] == n + 6);

    std::vector<int> mine{me, -me}, all = world.all_gather(mine);
    EXPECT(all.size() == mine.size() * static_cast<std::size_t>(n) && all[3] == -1);
    std::vector<int> part(1), wide(static_cast<std::size_t>(n), me);
    world.reduce_scatter(part, wide);
    EXPECT(part[0] == n * (n - 1) / 2);
    std::vector<int> from(static_cast<std::size_t>(n)), to(static_cast<std::size_t>(n));
    std::iota(to.begin(), to.end(), 10 * me);
    world.all_to_all(from, to);
    EXPECT(from[1] == 10 + me);
    world.barrier(std::chrono::seconds(60));
    EXPECT(world.ranks().size() == static_cast<std::size_t>(n) && world.ranks()[1] == 1);
}

static void spans(weft::world &world)
{
    std::vector<float> x(10, 1);
    world.all_reduce(weft::span<float>(x).sub(2, 3)); // a part of it, and a temporary
    EXPECT(x[1] == 1 && x[2] == static_cast<float>(world.size()) && x[5] == 1);
    const std::vector<float> in(2, 3);
    std::vector<float> out(2 * static_cast<std::size_t>(world.size()));
    world.all_gather(out, in); // what is only read may be const
    EXPECT(out.back() == 3);
    static_assert(weft::dtype_of<long long>() == WEFT_I64 &&
                  weft::dtype_of<const bool>() == WEFT_BOOL);
    static_assert(weft::dtype_of<weft::bf16>() == WEFT_BF16 &&
                  weft::dtype_of<char16_t>() == WEFT_U16);
}

static void messages(weft::world &world)
{
    int me = world.rank(), n = world.size(), next = (me + 1) % n, last = (me + n - 1) % n;
    std::vector<double> out(1000, me), in(1000);
    weft::work sent = world.send_start(out, next, 3);
    world.recv(in, last, 3);
    EXPECT(in[999] == last);
    sent.wait();
    weft::work any = world.recv_start(in, WEFT_ANY, 4);
    world.send(out, next, 4);
    any.wait();
    EXPECT(any.source() == last && any.test());
}

static void posted(weft::world &world)
{
    std::vector<float> x(1 << 12, 1), y(1 << 12, 2);
    {
        weft::work first = world.all_reduce_start(x), second;
        second = world.all_reduce_start(y, weft::avg);
    } // both are waited for: their operands may go now
    EXPECT(x[5] == static_cast<float>(world.size()) && y[5] == 2);
    std::vector<int> all(static_cast<std::size_t>(world.size())), mine{world.rank()};
    world.all_gather_start(all, mine).wait();
    EXPECT(all.back() == world.size() - 1);
}

static void memory(weft::world &world)
{
    int me = world.rank(), n = world.size(), next = (me + 1) % n, last = (me + n - 1) % n;
    weft::shared<std::int32_t> x(world, 100);
    EXPECT(x.size() == 100 && x.mine()[99] == 0 && weft_symm_is(x.tensor()));
    x[99] = me + 1;
    x.barrier();
    EXPECT(x.peer(next)[99] == next + 1);
    x.put_signal(last, 1);
    x.wait_signal(next, 1);
    weft::shared<std::int32_t> moved(std::move(x));
    EXPECT(moved.mine()[99] == me + 1);
    thrown<weft::error>([&] { moved.peer(n); });
    moved.barrier(2);
}

static void groups(weft::world &world)
{
    int me = world.rank();
    std::optional<weft::group> half = weft::group::split(world, me < 2 ? 0 : -1);
    EXPECT(half.has_value() == (me < 2));
    if (half)
        EXPECT(half->all_reduce_value(1) == 2 && half->rank() == me);
    std::vector<int> both{0, 1};
    if (me < 2) {
        weft::group pair = weft::group::of(world, both, "pair");
        EXPECT(pair.name() == "pair");
    }
    world.barrier();
}

static void errors(weft::world &world)
{
    int me = world.rank();
    std::string text = thrown<weft::error>([&] {
        std::vector<int> in(3), out(3);
        world.all_gather(out, in);
    });
    EXPECT(text.find("all_gather") != std::string::npos);
    std::vector<int> message(1, me);
    weft::work late = me ? weft::work() : world.recv_start(message, 1);
    if (!me)
        text = thrown<weft::timeout_error>([&] { late.wait(std::chrono::milliseconds(20)); });
    EXPECT(weft_last_status() == WEFT_OK); // who catches an error has dealt with it
    world.barrier();
    if (me)
        world.send(message, 0);
    else
        late.wait();
    EXPECT(message[0] == 1);
    bool noticed = false;
    try {
        std::vector<float> x(static_cast<std::size_t>(4 + me));
        world.all_reduce(x);
    } catch (const weft::mismatch_error &error) {
        EXPECT(error.status() == WEFT_ERR_MISMATCH && error.scope() == WEFT_SCOPE_GROUP);
        noticed = true;
    }
    EXPECT(noticed);
    weft::group again = weft::group::shrink(world);
    EXPECT(again.size() == world.size());
    again.revoke();
    thrown<weft::revoked_error>([&] { again.barrier(); });
}

static void test_cpp_throws_from_ranks()
{
    std::string text;
    try {
        weft::spawn(2, [](weft::world &world) {
            if (world.rank() == 1)
                throw failed("by rank 1");
            world.barrier();
        });
    } catch (const failed &error) {
        text = error.what();
    }
    bool right = text == "by rank 1";
    std::printf("test_cpp_throws_from_ranks threads 2 %s\n",
                right ? "pass" : "fail: another exception");
    failures += !right;
}

int main()
{
    test("test_cpp_collectives", 3, collectives);
    test("test_cpp_spans", 2, spans);
    test("test_cpp_messages", 3, messages);
    test("test_cpp_posted", 2, posted);
    test("test_cpp_memory", 3, memory);
    test("test_cpp_groups", 3, groups);
    test("test_cpp_errors", 2, errors);
    test_cpp_throws_from_ranks();
    return failures != 0;
}
