/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meeting through a store, for jobs that `weft run` did not start.  Every rank shows an address (who
 * it is, which host, where its descriptor server is); when all addresses are there, the first rank
 * of each host makes the host's job page and the others fetch it from its server.
 */
#include "fabric/meet/meet.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/os_look.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "fabric/group/exchange_store.h"
#include "fabric/world/news.h"
#include "fabric/world/remote.h"
#include "store/client.h"
#include "store/store.h"
#include "weft/version.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADDRESS_MAGIC = 0x64726163, SLICE_MS = 50, FAREWELL_MS = 2000 };

/* Plain bytes of fixed layout: what travels through the store. */
typedef struct address {
    uint32_t magic, layout;
    weft_i_key nonce; /* random; rank 0's names the job, a host's first rank's names its page */
    char version[20];
    char host[65];
    char fdpass[64];
    char wire; /* 1: it shows whether it can send to other hosts (meet_wires.c) */
    char reserved[2];
    weft_i_key page; /* of the page that its launcher made for the ranks of its host; 0: none */
    int32_t place;   /* the rank's in that page */
    int32_t places;
    char store[64]; /* where the server is that it keeps in reserve; empty: nowhere */
} address;

static void address_key(int rank, char out[32])
{
    snprintf(out, 32, "meet/%d", rank);
}

/* ---- bad news ---- */

static const char failed_key[] = "meet/failed";

typedef struct failure {
    int32_t rank, status;
} failure;

/* Tells the others that this rank cannot go on; keeps the reason. */
static void tell_failure(const weft_i_world *world, weft_store *store, weft_status why)
{
    failure mine = {world->rank, why};
    weft_i_errors reason;
    weft_i_errors_save(&reason);
    weft_store_compare_set(store, failed_key, "", 0, &mine, sizeof mine, NULL, NULL);
    if (world->key.word[0]) /* ranks that are further wait for our entries */
        weft_i_exchange_store_end(store, world->key, world->rank, why);
    weft_i_errors_restore(&reason);
}

static weft_status check_failure(weft_store *store)
{
    const char *key = failed_key;
    bool there = false;
    failure theirs = {0};
    weft_store_value value = {0};
    WEFT_TRY(weft_store_check(store, 1, &key, &there));
    if (!there)
        return WEFT_OK;
    WEFT_TRY(weft_store_get(store, key, WEFT_STORE_NOW, &value));
    memcpy(&theirs, value.data, value.bytes < sizeof theirs ? value.bytes : sizeof theirs);
    weft_store_value_clear(&value);
    return weft_i_fail(WEFT_ERR_PEER_LEFT,
                       "weft_init: rank %d could not enter the job: its weft_init failed (%s)",
                       theirs.rank, weft_strerror((weft_status)theirs.status));
}

/* Has a rank died that had come?  The store sees it. */
static weft_status check_deaths(weft_i_world *world)
{
    char names[160] = "";
    weft_i_text text = {names, sizeof names, 0};
    WEFT_TRY(weft_i_news_hear(world));
    for (int rank = 0; rank < world->size && text.used + 16 < sizeof names; rank++)
        if (atomic_load_explicit(&world->peers[rank].gone, memory_order_relaxed) == WEFT_I_DEAD)
            weft_i_text_put(&text, "%srank %d", text.used ? ", " : "", rank);
    return text.used
               ? weft_i_fail(WEFT_ERR_PEER_DEAD,
                             "weft_init: %s died, or exited, before the meeting was over", names)
               : WEFT_OK;
}

weft_status weft_i_meet_check(weft_i_world *world)
{
    WEFT_TRY(check_failure(world->store));
    WEFT_TRY(check_deaths(world));
    char gone[160] = "";
    weft_i_text text = {gone, sizeof gone, 0};
    for (int rank = 0; rank < world->size && text.used + 16 < sizeof gone; rank++) {
        const weft_i_peer *peer = &world->peers[rank];
        if (peer->rank_record && rank != world->rank && !weft_i_fdpass_is_open(peer->fdpass))
            weft_i_text_put(&text, "%srank %d", text.used ? ", " : "", rank);
    }
    if (!text.used)
        return WEFT_OK;
    /* All of them: whoever gave up because of another is gone as well. */
    return weft_i_fail(WEFT_ERR_PEER_DEAD,
                       "weft_init: %s came to the meeting and went before it was over", gone);
}

/* ---- what a rank says while it waits ---- */

/* Once, after a moment.  The ranks of a launcher may come one after the other, and nobody types
 * anything: there rank 0 speaks alone, and later. */
enum { BY_HAND_MS = 2000, LAUNCHED_MS = 10000, NOTICE_BYTES = 1024 };

typedef struct notice {
    const weft_i_start *start;
    int64_t at; /* 0: it has been given, or will not be */
} notice;

static notice notice_for(const weft_i_start *start)
{
    bool by_hand = start->by_hand || start->by_parent;
    notice it = {start, 0};
    if (by_hand || start->rank == 0)
        it.at = weft_i_os_deadline(by_hand ? BY_HAND_MS : LAUNCHED_MS);
    return it;
}

static bool is_due(const notice *it)
{
    return it->at && WEFT_OS->clock_ns() >= it->at;
}

/* What makes `rank` find this one: the variables that this one has.  A secret stays one. */
static void put_command(const weft_i_start *start, int rank, weft_i_text *out)
{
    static const char *const names[] = {"MASTER_ADDR", "MASTER_PORT", "WEFT_STORE_ADDR"};
    weft_i_text_put(out, "RANK=%d WORLD_SIZE=%d", rank, start->size);
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            weft_i_text_put(out, " %s=%.64s", names[i], value);
    }
    weft_i_text_put(out, "%s and the program",
                    *weft_i_env_text(WEFT_I_ENV_TOKEN) ? " WEFT_TOKEN=(as here)" : "");
}

/* Ranks that nothing but their parent process joins: in two shells they are two jobs. */
static const char by_parent[] =
    "; ranks that are started by hand in several shells find each other if all have "
    "MASTER_ADDR=127.0.0.1 (and the same MASTER_PORT, if there are several such jobs)";

/* `names`: "rank 1" or "ranks 1, 3"; `first` is the lowest of them. */
static void put_notice(const notice *it, const char *names, int first, bool several,
                       char out[NOTICE_BYTES])
{
    const weft_i_start *start = it->start;
    weft_i_text text = {out, NOTICE_BYTES, 0};
    weft_i_text_put(&text, "weft_init: rank %d of %d waits for %s", start->rank, start->size,
                    names);
    if (start->by_parent && !*weft_i_env_text(WEFT_I_ENV_STORE_ADDR)) {
        weft_i_text_put(&text, "%s", by_parent);
    } else if (start->by_hand) {
        weft_i_text_put(&text, "; start %s in a shell of its own: ", several ? "each" : "it");
        put_command(start, first, &text);
        if (getenv("MASTER_PORT"))
            weft_i_text_put(&text, "; all ranks must have the same MASTER_PORT");
    }
}

static void give_notice(notice *it, const char *names, int first, bool several)
{
    char text[NOTICE_BYTES];
    put_notice(it, names, first, several, text);
    weft_i_log(WEFT_LOG_WARN, "%s", text);
    it->at = 0;
}

/* ---- addresses ---- */

static weft_status show_address(const weft_i_start *start, weft_i_world *world, weft_store *store,
                                address *mine)
{
    mine->magic = ADDRESS_MAGIC; /* the rest is zero, as allocated */
    mine->layout = WEFT_I_JOB_LAYOUT;
    WEFT_TRY(weft_i_key_new(&mine->nonce));
    mine->wire = weft_i_remote_is_wanted();
    if (start->page) {
        for (int i = 0; i < 2; i++)
            mine->page.word[i] = WEFT_I_READ_ONCE(weft_i_job_of(start->page)->key.word[i]);
        mine->place = start->local_rank;
        mine->places = start->local_size;
    }
    snprintf(mine->version, sizeof mine->version, "%s", WEFT_VERSION);
    weft_i_os_host_id(mine->host);
    snprintf(mine->fdpass, sizeof mine->fdpass, "%s", weft_i_fdpass_name(world->fdpass));
    WEFT_TRY(weft_i_news_open(world));
    WEFT_TRY(weft_i_news_stand_by(world, mine->store, sizeof mine->store));
    char key[32];
    address_key(world->rank, key);
    bool stored = false;
    WEFT_TRY(weft_store_compare_set(store, key, "", 0, mine, sizeof *mine, &stored, NULL));
    if (!stored)
        return weft_i_fail(WEFT_ERR_STATE,
                           "rank %d has met already: two processes have this number, or an earlier "
                           "job with the same "
                           "name still runs",
                           world->rank);
    return WEFT_OK;
}

typedef struct missing {
    char names[512];
    int first, count;
    bool known; /* false: the store did not answer, there may be more */
} missing;

/* Rank `waited` for sure has not come; the store, if it is still there, knows of the others. */
static void find_missing(const weft_i_world *world, weft_store *store, int waited, missing *out)
{
    *out = (missing){.known = true};
    weft_i_text list = {out->names, sizeof out->names, 0};
    for (int rank = 0; rank < world->size && list.used + 16 < sizeof out->names; rank++) {
        char text[32];
        address_key(rank, text);
        const char *key = text;
        bool here = false;
        out->known &= rank == waited || weft_store_check(store, 1, &key, &here) == WEFT_OK;
        if (rank != waited && (!out->known || here))
            continue;
        weft_i_text_put(&list, "%s%d", list.used ? ", " : "", rank);
        out->first = out->count++ ? out->first : rank;
    }
}

static weft_status fail_missing(const weft_i_world *world, weft_store *store, int waited)
{
    missing who;
    find_missing(world, store, waited, &who);
    return weft_i_fail(WEFT_ERR_MISSING, "weft_init: of %d ranks these never came: %s%s",
                       world->size, who.names,
                       who.known ? "" : " (perhaps more: the store of rank 0 did not answer)");
}

static void tell_missing(const weft_i_world *world, weft_store *store, int waited, notice *it)
{
    missing who;
    char names[sizeof who.names + 16];
    find_missing(world, store, waited, &who);
    snprintf(names, sizeof names, "rank%s %s", who.count > 1 ? "s" : "", who.names);
    give_notice(it, names, who.first, who.count > 1);
}

static weft_status check_address(const weft_i_world *world, int rank, const weft_store_value *value)
{
    const address *theirs = value->data;
    /* Another version may have other addresses: how they begin stays, so that both can be told. */
    bool ours = value->bytes >= offsetof(address, host) && theirs->magic == ADDRESS_MAGIC;
    if (ours && (theirs->layout != WEFT_I_JOB_LAYOUT ||
                 strncmp(theirs->version, WEFT_VERSION, sizeof theirs->version)))
        return weft_i_fail(WEFT_ERR_VERSION,
                           "weft_init: rank %d runs weft %.19s (layout %u), rank %d runs weft %s "
                           "(layout %d)",
                           rank, theirs->version, theirs->layout, world->rank, WEFT_VERSION,
                           WEFT_I_JOB_LAYOUT);
    if (!ours || value->bytes != sizeof *theirs)
        return weft_i_fail(WEFT_ERR_PROTOCOL,
                           "weft_init: the address of rank %d is not one of weft's (%zu bytes)",
                           rank, value->bytes);
    return WEFT_OK;
}

static weft_status read_address(weft_i_world *world, weft_store *store, int rank, int64_t deadline,
                                notice *it, address *out)
{
    char key[32];
    address_key(rank, key);
    weft_store_value value = {0};
    weft_status status;
    do {
        status = weft_store_get(store, key, SLICE_MS, &value);
        if (status == WEFT_ERR_TIMEOUT && WEFT_OS->clock_ns() >= deadline)
            return fail_missing(world, store, rank);
        if (status == WEFT_ERR_TIMEOUT)
            WEFT_TRY(check_failure(store));
        if (status == WEFT_ERR_TIMEOUT)
            WEFT_TRY(check_deaths(world));
        if (status == WEFT_ERR_TIMEOUT && is_due(it))
            tell_missing(world, store, rank, it);
    } while (status == WEFT_ERR_TIMEOUT);
    if (status == WEFT_ERR_UNREACHABLE)
        return weft_i_explain(WEFT_ERR_MISSING,
                              "weft_init: rank %d had not come when the store of the meeting, or "
                              "rank 0 which serves it, went away",
                              rank);
    if (status < 0)
        return status;
    status = check_address(world, rank, &value);
    if (status == WEFT_OK)
        memcpy(out, value.data, sizeof *out);
    weft_store_value_clear(&value);
    if (status == WEFT_OK) {
        out->host[64] = out->fdpass[63] = out->store[63] = 0;
        snprintf(world->peers[rank].store, sizeof world->peers[rank].store, "%s", out->store);
        snprintf(world->peers[rank].host, sizeof world->peers[rank].host, "%s", out->host);
        snprintf(world->peers[rank].fdpass, sizeof world->peers[rank].fdpass, "%s", out->fdpass);
    }
    return status;
}

/* Who of the world is on this host: fills `locals` with their ranks, returns how many. */
static int find_locals(const weft_i_world *world, int *locals)
{
    int count = 0;
    for (int rank = 0; rank < world->size; rank++)
        if (!strcmp(world->peers[rank].host, world->peers[world->rank].host))
            locals[count++] = rank;
    return count;
}

/* The first local rank makes the page; if it cannot, the others must not wait for it. */
static weft_status make_page(weft_i_world *world, int count, weft_i_key key, weft_i_segment **out)
{
    weft_status status = weft_i_job_new(count, WEFT_I_BETWEEN_PROCESSES, out);
    if (status == WEFT_OK)
        weft_i_job_of(*out)->key = world->key;
    weft_status offered = weft_i_fdpass_publish(world->fdpass, key, *out, status);
    if (status == WEFT_OK && offered < 0)
        weft_i_segment_drop(*out);
    return status < 0 ? status : offered;
}

static weft_status lost_leader(void *arg)
{
    return check_failure(arg);
}

static weft_status fetch_page(weft_i_world *world, int leader, int count, weft_i_key key,
                              int64_t deadline, weft_i_segment **out)
{
    weft_i_fdpass_order order = {.own = world->fdpass,
                                 .peer = world->peers[leader].fdpass,
                                 .key = key,
                                 .bytes = weft_i_job_bytes(count),
                                 .keep = true, /* by which weft_job_open finds it */
                                 .deadline = deadline,
                                 .lost = lost_leader,
                                 .arg = world->store};
    weft_status status = weft_i_fdpass_fetch(&order, out);
    if (status == WEFT_ERR_TIMEOUT)
        return weft_i_fail(WEFT_ERR_MISSING,
                           "weft_init: rank %d did not hand out the job page of this host in time",
                           leader);
    if (status < 0)
        return weft_i_explain(status, "weft_init: fetching the job page from rank %d", leader);
    int ranks = 0;
    status = weft_i_job_check(*out, &ranks);
    if (status == WEFT_OK && ranks != count)
        status = weft_i_fail(WEFT_ERR_PROTOCOL,
                             "weft_init: the job page of rank %d has %d ranks, not %d", leader,
                             ranks, count);
    if (status < 0)
        weft_i_segment_drop(*out);
    return status;
}

/* Do all ranks of this host stand in the page of one launcher, in their order?  All of them see the
 * same addresses, and come to the same answer. */
static bool share_page(const address *addresses, const int *locals, int count)
{
    const address *first = &addresses[locals[0]];
    for (int i = 0; i < count; i++) {
        const address *theirs = &addresses[locals[i]];
        if (!(theirs->page.word[0] | theirs->page.word[1]) || theirs->place != i ||
            theirs->places != count || memcmp(&theirs->page, &first->page, sizeof first->page) != 0)
            return false;
    }
    return true;
}

static weft_status enter_page_of_host(weft_i_world *world, weft_i_segment *page, int place,
                                      const int *locals, int count)
{
    weft_status status = weft_i_world_enter(world, page, world->fdpass, place);
    for (int i = 0; status == WEFT_OK && i < count; i++)
        world->peers[locals[i]].rank_record = weft_i_job_rank(weft_i_job_of(page), i);
    return status;
}

static weft_status enter_host(const weft_i_start *start, weft_i_world *world,
                              const address *addresses, const int *locals, int count,
                              int64_t deadline)
{
    int leader = locals[0], place = 0;
    while (locals[place] != world->rank)
        place++;
    weft_i_key key = addresses[leader].nonce;
    weft_i_segment *page = NULL;
    if (start->page && share_page(addresses, locals, count))
        return enter_page_of_host(world, start->page, place, locals, count);
    WEFT_TRY(place == 0 ? make_page(world, count, key, &page)
                        : fetch_page(world, leader, count, key, deadline, &page));
    weft_status status = enter_page_of_host(world, page, place, locals, count);
    weft_i_segment_drop(page);
    return status;
}

static weft_status exchange_addresses(const weft_i_start *start, weft_i_world *world,
                                      weft_store *store, int64_t deadline, address *addresses)
{
    notice it = notice_for(start);
    WEFT_TRY(show_address(start, world, store, &addresses[world->rank]));
    for (int rank = 0; rank < world->size; rank++)
        WEFT_TRY(read_address(world, store, rank, deadline, &it, &addresses[rank]));
    world->key = addresses[0].nonce;
    return WEFT_OK;
}

static bool all_show_wires(weft_i_world *world, const address *addresses)
{
    for (int rank = 0; rank < world->size; rank++)
        if (!addresses[rank].wire) {
            snprintf(world->remote_why, sizeof world->remote_why, "rank %d: WEFT_UCX is off", rank);
            return false;
        }
    return true;
}

static weft_status meet(const weft_i_start *start, weft_i_world *world, weft_store *store,
                        int64_t deadline, address *addresses, int *locals)
{
    WEFT_TRY(exchange_addresses(start, world, store, deadline, addresses));
    int count = find_locals(world, locals);
    weft_status status = enter_host(start, world, addresses, locals, count, deadline);
    if (status == WEFT_OK && count < world->size && all_show_wires(world, addresses))
        status = weft_i_meet_wires(world, store, deadline);
    if (status < 0 && status != WEFT_ERR_MISSING && status != WEFT_ERR_PEER_LEFT)
        tell_failure(world, store, status);
    return status;
}

static weft_status fail_unanswered(const weft_i_world *world, weft_status status)
{
    if (status != WEFT_ERR_TIMEOUT || world->rank == 0)
        return status;
    return weft_i_explain(WEFT_ERR_MISSING,
                          "weft_init: rank 0, which serves the store of the meeting, has stopped "
                          "answering; is it stopped, or its machine gone?");
}

void weft_i_meet_see_others_off(weft_store *store, int64_t deadline)
{
    int64_t moment = weft_i_os_deadline(FAREWELL_MS);
    weft_i_store_client_await_alone(store, moment < deadline ? moment : deadline);
}

weft_status weft_i_meet_by_store(const weft_i_start *start, weft_i_world *world, weft_store *store,
                                 int64_t deadline)
{
    weft_status status = weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &world->fdpass);
    address *addresses = WEFT_OS->alloc((size_t)world->size * sizeof *addresses);
    int *locals = WEFT_OS->alloc((size_t)world->size * sizeof *locals);
    if (status == WEFT_OK && (!addresses || !locals))
        status =
            weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_init: no memory for %d addresses", world->size);
    if (status < 0)
        tell_failure(world, store, status);
    else
        status = fail_unanswered(world, meet(start, world, store, deadline, addresses, locals));
    if (status < 0 && weft_i_store_client_serves(store))
        weft_i_meet_see_others_off(store, deadline);
    WEFT_OS->free(addresses);
    WEFT_OS->free(locals);
    return status;
}

/* ---- finding the store of a foreign launcher ---- */

/* An address that means every host's own: whoever has it is here. */
static bool is_this_host(const char *name)
{
    return !strncmp(name, "127.", 4) || !strcmp(name, "localhost") || !strcmp(name, "::1");
}

static bool all_on_one_host(const weft_i_start *start)
{
    const char *nodes = getenv("SLURM_NNODES");
    if (start->local_size >= 0)
        return start->local_size == start->size || (nodes && !strcmp(nodes, "1"));
    if (*weft_i_env_text(WEFT_I_ENV_STORE_ADDR))
        return false;
    if (nodes && strcmp(nodes, "1") != 0)
        return false;
    const char *master = getenv("MASTER_ADDR");
    return !master || is_this_host(master);
}

static void wait_a_little(void)
{
    WEFT_OS->sleep_ns((int64_t)SLICE_MS * 1000000 / 10);
}

static int64_t left_ms(int64_t deadline)
{
    int64_t left = (deadline - WEFT_OS->clock_ns()) / 1000000;
    return deadline == WEFT_I_NEVER ? WEFT_FOREVER : left > 0 ? left : 1;
}

/*
 * Abstract names belong to whoever is first, and anybody can work these out, unless there is a
 * token to make them from.  But nobody can pretend to be another user.  So there are several names
 * for one meeting: those that somebody else holds are passed over, by rank 0 and by those who look
 * for it.
 */
void weft_i_meet_local_name(const weft_i_start *start, int number, char out[WEFT_I_MEET_NAME])
{
    const char *token = weft_i_env_text(WEFT_I_ENV_TOKEN);
    weft_i_key name = weft_i_key_of((weft_i_key){{(uint64_t)weft_i_os_user(), (uint64_t)number}},
                                    start->job, strlen(start->job));
    name = weft_i_key_of(name, token, strlen(token));
    snprintf(out, WEFT_I_MEET_NAME, "weft-meet-%016llx%016llx", (unsigned long long)name.word[0],
             (unsigned long long)name.word[1]);
}

/* The name is taken.  By an earlier job of ours on its way out it soon is not; somebody else is
 * known by the user, or by never listening. */
static weft_status wait_for_name(const char *name, int64_t deadline)
{
    int64_t patience = WEFT_OS->clock_ns() + (int64_t)SLICE_MS * 1000000;
    int owner;
    while ((owner = weft_i_store_unix_owner(name)) < 0 && WEFT_OS->clock_ns() < patience)
        wait_a_little();
    if (owner != weft_i_os_user())
        return WEFT_ERR_AUTH;
    if (WEFT_OS->clock_ns() >= deadline)
        return WEFT_ERR_ADDR_IN_USE;
    wait_a_little();
    return WEFT_OK;
}

static weft_store *serve_local(const weft_i_start *start, int64_t deadline)
{
    char name[WEFT_I_MEET_NAME];
    for (int number = 0; number < WEFT_I_MEET_NAMES;) {
        weft_i_meet_local_name(start, number, name);
        weft_store *store = weft_store_unix_serve(name);
        if (store || weft_last_status() != WEFT_ERR_ADDR_IN_USE)
            return store;
        weft_status status = wait_for_name(name, deadline);
        if (status == WEFT_ERR_ADDR_IN_USE)
            return NULL; /* its message is there */
        number += status < 0;
    }
    return weft_i_null(
        WEFT_ERR_ADDR_IN_USE,
        "weft_init: another user (the last one is %d) holds all %d names by which the "
        "ranks of this host would find each other; set WEFT_TOKEN to the same 64 hex "
        "digits on all ranks, then nobody can guess them",
        weft_i_store_unix_owner(name), WEFT_I_MEET_NAMES);
}

/* What a rank that finds nobody may have been started without; empty below a launcher. */
static void put_hint(const weft_i_start *start, char *out, size_t bytes)
{
    const char *port = getenv("MASTER_PORT");
    *out = 0;
    if (start->by_parent)
        snprintf(out, bytes, "%s", by_parent);
    else if (start->by_hand)
        snprintf(out, bytes,
                 "; all ranks must have the same MASTER_PORT (here %.16s), and rank 0 must run",
                 port && *port ? port : "none");
}

static weft_store *fail_alone(const weft_i_start *start, const char *name)
{
    char hint[256];
    put_hint(start, hint, sizeof hint);
    return weft_i_null(WEFT_ERR_MISSING,
                       "weft_init (%s, rank %d of %d): rank 0 never came to the meeting: nobody of "
                       "user %d listens at @%s or its like%s",
                       start->launcher, start->rank, start->size, weft_i_os_user(), name, hint);
}

static weft_store *find_local(const weft_i_start *start, int64_t deadline)
{
    char name[WEFT_I_MEET_NAME];
    notice it = notice_for(start);
    for (;;) {
        for (int number = 0; number < WEFT_I_MEET_NAMES; number++) {
            weft_i_meet_local_name(start, number, name);
            if (weft_i_store_unix_owner(name) == weft_i_os_user())
                return weft_store_unix_connect(name, left_ms(deadline));
        }
        if (WEFT_OS->clock_ns() >= deadline)
            return fail_alone(start, name);
        if (is_due(&it))
            give_notice(&it, "rank 0", 0, false);
        wait_a_little();
    }
}

static weft_status read_port(const char *name, const char *text, int *port)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > 65535)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_init: \"%s\" in %s is not a port, a number from 1 to 65535", text,
                           name);
    *port = (int)value;
    return WEFT_OK;
}

/* On one host the port is a part of the job's name; junk there is a mistake all the same. */
static weft_status check_port(void)
{
    const char *port = getenv("MASTER_PORT");
    int unused;
    return port && getenv("MASTER_ADDR") ? read_port("MASTER_PORT", port, &unused) : WEFT_OK;
}

static weft_store *local_store(const weft_i_start *start, int64_t deadline)
{
    if (check_port() < 0)
        return NULL;
    return start->rank == 0 ? serve_local(start, deadline) : find_local(start, deadline);
}

/* "host:port" from WEFT_STORE_ADDR, or MASTER_ADDR and MASTER_PORT.  An address of IPv6 stands in
 * brackets. */
static weft_status store_address(const weft_i_start *start, char host[256], int *port)
{
    const char *given = weft_i_env_text(WEFT_I_ENV_STORE_ADDR);
    const char *master = getenv("MASTER_ADDR"), *master_port = getenv("MASTER_PORT");
    const char *colon = strrchr(given, ':');
    if (*given && colon) {
        snprintf(host, 256, "%.*s", (int)(colon - given), given);
        return read_port("WEFT_STORE_ADDR", colon + 1, port);
    }
    if (!*given && master && master_port) {
        snprintf(host, 256, "%s", master);
        return read_port("MASTER_PORT", master_port, port);
    }
    if (!*given && !master && *start->master) {
        snprintf(host, 256, "%s", start->master);
        *port = start->master_port;
        return WEFT_OK;
    }
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "weft_init: ranks on several hosts need WEFT_STORE_ADDR=host:port (or "
                       "MASTER_ADDR and MASTER_PORT) of rank 0's host");
}

static weft_store *connect_far(const weft_i_start *start, const char *host, int port,
                               const char *token, int64_t deadline)
{
    notice it = notice_for(start);
    char text[NOTICE_BYTES];
    put_notice(&it, "rank 0", 0, false, text);
    return weft_i_store_tcp_connect(host, port, token, left_ms(deadline), it.at ? text : NULL,
                                    it.at);
}

static weft_store *remote_store(const weft_i_start *start, int64_t deadline)
{
    char host[256];
    int port = 0;
    if (store_address(start, host, &port) < 0)
        return NULL;
    const char *token = weft_i_env_text(WEFT_I_ENV_TOKEN);
    if (!*token)
        return weft_i_null(
            WEFT_ERR_AUTH,
            "weft_init: ranks on several hosts need the job's secret: set WEFT_TOKEN to "
            "the same 64 hex digits on all of them; `weft token` prints some, so type "
            "export WEFT_TOKEN=$(weft token) on one host and what it gave on the others");
    return start->rank == 0 ? weft_store_tcp_serve(host, port, token)
                            : connect_far(start, host, port, token, deadline);
}

weft_status weft_i_meet_find_store(const weft_i_start *start, int64_t deadline, weft_store **out)
{
    *out = all_on_one_host(start) ? local_store(start, deadline) : remote_store(start, deadline);
    if (*out)
        return WEFT_OK;
    if (weft_last_status() == WEFT_ERR_MISSING) /* said in full */
        return WEFT_ERR_MISSING;
    if (weft_last_status() == WEFT_ERR_UNREACHABLE || weft_last_status() == WEFT_ERR_TIMEOUT)
        return weft_i_explain(WEFT_ERR_MISSING,
                              "weft_init (%s, rank %d of %d): rank 0 never came to the meeting",
                              start->launcher, start->rank, start->size);
    return weft_i_explain(weft_last_status(), "weft_init (%s, rank %d of %d)", start->launcher,
                          start->rank, start->size);
}
