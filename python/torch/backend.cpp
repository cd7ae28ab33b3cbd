/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a process group: how its ranks meet, what groups come of it, how it ends. */
#include "symm.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <random>
#include <set>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_map>

namespace weft_torch
{

/* ---- groups by PyTorch's names ---- */

static std::mutex names_lock;
static std::unordered_map<std::string, weft_group *> names;

weft_group *group_named(const std::string &name)
{
    std::lock_guard<std::mutex> guard(names_lock);
    auto found = names.find(name);
    return found == names.end() ? nullptr : found->second;
}

/* ---- meeting ---- */

/* Ranks that say the same can reach the same abstract sockets and share memory. */
static std::string host_identity()
{
    const char *forced = getenv("WEFT_HOST_ID");
    std::ostringstream text;
    if (forced && *forced) {
        text << forced;
    } else {
        char boot[64] = "";
        if (FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r")) {
            if (!fgets(boot, sizeof boot, file))
                boot[0] = 0;
            fclose(file);
        }
        text << std::string(boot, strcspn(boot, "\n"));
    }
    struct stat net {
    };
    if (stat("/proc/self/ns/net", &net) == 0)
        text << " " << net.st_ino;
    return text.str();
}

static std::string random_hex(int digits)
{
    std::random_device source;
    std::string text;
    while ((int)text.size() < digits) {
        char word[9];
        snprintf(word, sizeof word, "%08x", source());
        text += word;
    }
    return text.substr(0, digits);
}

static std::string get_text(c10d::Store &store, const std::string &key, Millis timeout)
{
    store.wait({key}, timeout);
    auto bytes = store.get(key);
    return std::string(bytes.begin(), bytes.end());
}

static void set_text(c10d::Store &store, const std::string &key, const std::string &text)
{
    store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

static void need(const void *object)
{
    if (!object)
        fail(std::string("[weft] ") + weft_last_error());
}

/* On one host an abstract socket with a name that nobody guesses, between hosts a port and a secret. */
static weft_store *serve(bool one_host, std::string *place)
{
    if (one_host) {
        std::string address = "weft-torch-" + std::to_string(getpid()) + "-" + random_hex(24);
        auto *store = (weft_store *)weft_keep(weft_store_unix_serve(address.c_str()));
        need(store);
        *place = "unix " + address;
        return store;
    }
    const char *master = getenv("MASTER_ADDR"), *first = getenv("RANK");
    char host[256] = "127.0.0.1";
    if (master && first && !strcmp(first, "0"))
        snprintf(host, sizeof host, "%s", master);
    else if (gethostname(host, sizeof host) < 0)
        snprintf(host, sizeof host, "127.0.0.1");
    std::string token = random_hex(64);
    auto *store = (weft_store *)weft_keep(weft_store_tcp_serve(host, 0, token.c_str()));
    need(store);
    *place =
        std::string("tcp ") + host + " " + std::to_string(weft_store_port(store)) + " " + token;
    return store;
}

static weft_store *connect(const std::string &place, Millis timeout)
{
    std::istringstream words(place);
    std::string kind, address, token;
    int port = 0;
    words >> kind >> address >> port >> token;
    TORCH_CHECK_WITH(DistBackendError, kind == "unix" || kind == "tcp", "[weft] rank 0 could not ",
                     "begin the group: ", place);
    auto *store = (weft_store *)weft_keep(
        kind == "unix"
            ? weft_store_unix_connect(address.c_str(), timeout.count())
            : weft_store_tcp_connect(address.c_str(), port, token.c_str(), timeout.count()));
    need(store);
    return store;
}

/* Rank 0 looks where the others are, opens weft's store and tells where; if it cannot, it tells why. */
std::string WeftBackend::agree_on_place(Millis timeout)
{
    std::string place;
    try {
        bool one_host = true;
        for (int rank = 1; rank < size_; rank++)
            if (get_text(*torch_store, "weft/host/" + std::to_string(rank), timeout) !=
                host_identity())
                one_host = false;
        store = serve(one_host, &place);
    } catch (const std::exception &error) {
        set_text(*torch_store, "weft/meet", error.what());
        throw;
    }
    set_text(*torch_store, "weft/meet", place);
    return place;
}

void WeftBackend::meet(Millis timeout)
{
    if (rank_ == 0) {
        agree_on_place(timeout);
    } else {
        set_text(*torch_store, "weft/host/" + std::to_string(rank_), host_identity());
        store = connect(get_text(*torch_store, "weft/meet", timeout), timeout);
    }
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.store = store;
    opts.rank = rank_;
    opts.world_size = size_;
    opts.meet_timeout_ms = opts.timeout_ms = timeout.count() > 0 ? timeout.count() : 0;
    group = (weft_group *)weft_keep(weft_init(&opts));
    need(group);
}

WeftBackend::WeftBackend(const c10::intrusive_ptr<c10d::Store> &s, int rank, int size,
                         Millis timeout, const std::string &group_name)
    : Backend(rank, size), torch_store(s), options(c10::make_intrusive<Options>("weft", timeout)),
      name(group_name)
{
#if WEFT_TORCH_AT_LEAST(2, 7)
    options->group_name = group_name;
#endif
    WithoutGil others_go_on;
    heed_signals();
    try {
        meet(timeout);
    } catch (...) {
        weft_release(group);
        weft_release(store);
        raise_interrupt();
        throw;
    }
    init();
    std::lock_guard<std::mutex> guard(names_lock);
    names[name] = group;
}

WeftBackend::~WeftBackend()
{
    leave();
    weft_release(group);
    weft_release(store);
}

/* ---- ending ---- */

void WeftBackend::alive() const
{
    TORCH_CHECK_WITH(DistBackendError, !over, "[weft] the process group \"", name,
                     "\" was shut down");
}

/* What was posted ends first.  Whoever completes it may want Python's lock. */
void WeftBackend::leave()
{
    if (over.exchange(true))
        return;
    {
        std::lock_guard<std::mutex> guard(names_lock);
        auto found = names.find(name);
        if (found != names.end() && found->second == group)
            names.erase(found);
    }
    forget_handles(name);
    WithoutGil others_go_on;
    weft_clear_error(); /* it was raised where it happened */
    weft_finish(group);
}

void WeftBackend::abort()
{
    if (!over)
        weft_group_revoke(group);
}

void WeftBackend::setTimeout(Millis timeout)
{
    options->timeout = timeout;
    if (timeout.count() > 0 && weft_group_set_timeout(group, timeout.count()) < 0)
        fail(std::string("[weft] ") + weft_last_error());
}

/* ---- groups of a group ---- */

#if WEFT_TORCH_AT_LEAST(2, 8)
c10::intrusive_ptr<c10d::Backend> WeftBackend::split(const c10::intrusive_ptr<c10d::Store> &s,
                                                     const std::vector<int> &ranks,
                                                     const c10::intrusive_ptr<Options> &opts)
{
    auto mine = std::find(ranks.begin(), ranks.end(), rank_);
    if (mine == ranks.end())
        return nullptr;
    return merge(s, opts, (int)(mine - ranks.begin()), (int)ranks.size());
}

c10::intrusive_ptr<c10d::Backend> WeftBackend::merge(const c10::intrusive_ptr<c10d::Store> &s,
                                                     const c10::intrusive_ptr<Options> &opts,
                                                     const int &rank, const int &size)
{
    return c10::make_intrusive<WeftBackend>(
        s->clone(), rank, size, opts ? opts->timeout : options->timeout,
        opts && !opts->group_name.empty() ? opts->group_name : name + "/part");
}

/* Those who stay meet anew, so it does not matter whether the others are dead, stuck or gone. */
c10::intrusive_ptr<c10d::Backend> WeftBackend::shrink(const std::vector<int64_t> &ranks_to_exclude,
                                                      int, const c10::intrusive_ptr<Options> &opts)
{
    std::set<int64_t> gone(ranks_to_exclude.begin(), ranks_to_exclude.end());
    TORCH_CHECK_VALUE(!gone.count(rank_), "weft: rank ", rank_, " cannot exclude itself");
    int rank = 0, size = 0;
    for (int r = 0; r < size_; r++)
        if (!gone.count(r)) {
            rank += r < rank_;
            size++;
        }
    std::string prefix = "shrink/" + std::to_string(++shrinks);
    for (int64_t r : gone)
        prefix += "-" + std::to_string(r);
    return merge(c10::make_intrusive<c10d::PrefixStore>(prefix, torch_store), opts, rank, size);
}
#endif

} // namespace weft_torch
