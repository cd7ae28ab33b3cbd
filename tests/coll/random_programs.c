/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/enter.c, coll/lane/lane.c, coll/calls/run.c, fabric/group/quarrel.c,
 * fabric/group/group_shrink.c, fabric/group/group_end.c */
/*
 * Random programs of several ranks with random faults: mismatches, kills, stops, ranks that leave
 * early, revokes; see random_program.h.  Whatever happens,
 *
 *   - every call ends, and nothing crashes;
 *   - every result of a call that succeeds is that of a plain model;
 *   - a call fails only for what has happened, and its message names a rank that is at fault;
 *   - a shrink leaves out only ranks that are gone;
 *   - no process and no descriptor is left.
 *
 *     random_programs --seed 7 --count 1 [--threads | --processes]
 *
 * runs programs 7 to 7, for instance one that was told to have failed.  The soak (soak.c) is its
 * complement: there nothing fails, so it runs long, on more ranks, and looks at memory that grows.
 */
#include "random_steps.h"

#include "harness_ranks.h"

#include <limits.h>

static program_page *page;

/* ---- a rank ---- */

static void complain(player *who, const char *text)
{
    program_rank *mine = &page->rank[who->rank];
    if (mine->complaint[0])
        return;
    mine->when = harness_now();
    snprintf(mine->complaint, sizeof mine->complaint, "chapter %d, step %d (%s): %s", who->chapter,
             who->step, step_names[program_step(who->program, who->chapter, who->step)], text);
}

static void say_gone(const player *who, int how)
{
    atomic_store(&page->rank[who->rank].gone, how);
    atomic_fetch_or(&page->seen_gone, how);
}

typedef struct injury {
    player *who;
    const fault *fault;
    pthread_t thread;
} injury;

static void rest(int64_t us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static void *injure(void *arg)
{
    const injury *one = arg;
    rest(one->fault->delay_us);
    if (one->fault->kind == FAULT_KILL) {
        say_gone(one->who, GONE_KILLED);
        kill(getpid(), SIGKILL);
    }
    atomic_store(&page->rank[one->who->rank].stopped, one->fault->ms);
    kill(getpid(), SIGSTOP);
    return NULL;
}

/* What happens to this rank in or before this step; NULL: nothing. */
static const fault *fault_here(const player *who)
{
    for (int i = 0; i < who->program->faults; i++) {
        const fault *f = &who->program->fault[i];
        if (f->victim == who->rank && f->chapter == who->chapter && f->step == who->step)
            return f;
    }
    return NULL;
}

static void revoke_base(player *who)
{
    atomic_store(&page->revoked, 1);
    CHECK_OK(weft_group_revoke(who->base));
}

/* True: the rank shall leave now. */
static bool suffer(player *who, injury *hurt)
{
    const fault *f = fault_here(who);
    *hurt = (injury){.who = who};
    if (!f || f->kind == FAULT_NONE || f->kind == FAULT_MISMATCH)
        return false;
    if (f->kind == FAULT_LEAVE)
        return true;
    if (f->kind == FAULT_REVOKE) {
        revoke_base(who);
    } else if (who->program->threads) {
        rest(f->ms * 1000);
    } else {
        hurt->fault = f;
        CHECK(pthread_create(&hurt->thread, NULL, injure, hurt) == 0);
    }
    return false;
}

/* ---- what a failed call may be and say ---- */

/* Is there a rank among those that the message names ("rank 2 (...", "rank 2 of the world") for
 * which this holds? */
static bool names(const player *who, bool (*holds)(const player *who, int rank))
{
    for (const char *at = who->why; (at = strstr(at, "rank ")); at += 5) {
        char *end;
        long rank = strtol(at + 5, &end, 10);
        if (end == at + 5 || rank < 0 || rank >= who->program->ranks)
            continue;
        if (holds(who, (int)rank))
            return true;
    }
    return false;
}

static bool is_killed(const player *who, int rank)
{
    (void)who;
    return atomic_load(&page->rank[rank].gone) == GONE_KILLED;
}

static bool has_left(const player *who, int rank)
{
    (void)who;
    return atomic_load(&page->rank[rank].gone) == GONE_LEFT;
}

static bool is_victim(const player *who, int rank)
{
    for (int i = 0; i < who->program->faults; i++)
        if (who->program->fault[i].victim == rank)
            return true;
    return false;
}

/* Ranks that have not come further than this one, and those that a fault hits, which may have come
 * since: who waits for them does not blame the innocent. */
static bool is_behind(const player *who, int rank)
{
    return rank != who->rank &&
           (is_victim(who, rank) || atomic_load(&page->rank[rank].gone) ||
            atomic_load(&page->rank[rank].at) <= who->chapter * 1000 + who->step);
}

/* What is wrong with the error: NULL, nothing. */
static const char *judge(const player *who, weft_status status)
{
    const program *p = who->program;
    int gone = atomic_load(&page->seen_gone);
    bool stops = program_has(p, FAULT_STOP_LONG);
    switch (status) {
    case WEFT_ERR_PEER_DEAD:
        return !(gone & GONE_KILLED)   ? "nobody has died"
               : names(who, is_killed) ? NULL
                                       : "names nobody that has died";
    case WEFT_ERR_PEER_LEFT:
        return !(gone & GONE_LEFT)    ? "nobody has left"
               : names(who, has_left) ? NULL
                                      : "names nobody that has left";
    case WEFT_ERR_REVOKED:
        /* A time-out in the middle of a call ends the group for all. */
        return stops || atomic_load(&page->revoked) ? NULL : "nobody has revoked";
    case WEFT_ERR_MISMATCH:
        /* A rank whose posted call has timed out makes its next one instead, which is not what one
         * that comes late calls.  A call behind a posted one whose splits did not match says only
         * that the group has ended so; what differed is in the error of the posted one.  A barrier of symmetric memory does
         * not know who was the first to differ. */
        return stops || strstr(who->why, "ended the group") ||
                       strstr(who->why, "another rank called something else here")
                   ? NULL
               : !program_has(p, FAULT_MISMATCH) ? "there is no mismatch"
               : names(who, is_victim)           ? NULL
                                                 : "does not name the rank that differs";
    case WEFT_ERR_TIMEOUT:
        return !stops                                            ? "nobody was stopped for so long"
               : strstr(who->why, "came as the deadline passed") ? NULL
               : strstr(who->why, "came as its deadline passed") ? NULL
               : names(who, is_behind)                           ? NULL
                                                                 : "names nobody that is late";
    default:
        return "is no error that a fault of these makes";
    }
}

static void note_failure(player *who, weft_status status, long long took_ms)
{
    program_rank *mine = &page->rank[who->rank];
    const char *wrong = judge(who, status);
    if (!mine->errors++)
        mine->first_error = status;
    if (took_ms > mine->worst_ms)
        mine->worst_ms = took_ms;
    if (wrong)
        FAIL("%s, which %s: %s", weft_status_name(status), wrong, who->why);
    /* Some steps make ten calls, each with the limit. */
    if (took_ms > 10 * who->program->limit_ms + 60000)
        FAIL("a call took %lld ms: %s", took_ms, who->why);
}

/* ---- chapters ---- */

static void finish_injury(const injury *hurt)
{
    if (hurt->fault)
        pthread_join(hurt->thread, NULL);
}

static weft_status take_step(player *who)
{
    program_rank *mine = &page->rank[who->rank];
    atomic_store(&mine->at, who->chapter * 1000 + who->step);
    long long begin = harness_now();
    weft_scope_open();
    weft_status status =
        who->step < program_steps(who->chapter)
            ? player_take_kind(who, program_step(who->program, who->chapter, who->step))
            : player_settle_all(who);
    if (status == WEFT_OK && who->step >= program_steps(who->chapter) &&
        weft_group_barrier(who->base, WEFT_DEFAULT) < 0)
        status = player_failed(who);
    weft_scope_close();
    if (status < 0)
        note_failure(who, status, (harness_now() - begin) / 1000000);
    else
        mine->operations++;
    return status;
}

/* True: through, or gone.  False: a call has failed. */
static bool take_chapter(player *who)
{
    int steps = program_steps(who->chapter);
    for (who->step = 0; who->step <= steps; who->step++) {
        injury hurt;
        if (suffer(who, &hurt))
            return true;
        weft_status status = take_step(who);
        finish_injury(&hurt);
        if (status < 0)
            return false;
    }
    return true;
}

/* Everybody who lives is in the new group, and nobody else is missing but those who are gone. */
static void check_shrunk(player *who, weft_group *shrunk)
{
    program_rank *mine = &page->rank[who->rank];
    const int *before = weft_group_ranks(who->base), *after = weft_group_ranks(shrunk);
    int left = weft_size(shrunk);
    mine->shrinks++;
    for (int i = 0, j = 0; i < weft_size(who->base); i++) {
        if (j < left && after[j] == before[i]) {
            j++;
            continue;
        }
        mine->left_out++;
        if (!atomic_load(&page->rank[before[i]].gone))
            FAIL("shrink has left out rank %d, which lives", before[i]);
    }
}

/* At the limit ranks give up, one after the other, and those who do leave. */
static void check_failed_shrink(player *who, weft_status status, long long took_ms)
{
    page->rank[who->rank].errors++;
    bool gone = status == WEFT_ERR_PEER_LEFT || status == WEFT_ERR_PEER_DEAD;
    if (!program_has(who->program, FAULT_STOP_LONG) || (status != WEFT_ERR_TIMEOUT && !gone))
        FAIL("shrink: %s: %s", weft_status_name(status), who->why);
    bool early = took_ms + 50 < PROGRAM_SHRINK * who->program->limit_ms;
    if (early && !strstr(who->why, "given up by rank")) /* whose limit began before ours */
        FAIL("shrink gave up after %lld ms: %s", took_ms, who->why);
}

/* Goes on without those who are gone; false: some did not come in time, which ends the program. */
static bool go_on(player *who)
{
    weft_group *shrunk;
    long long begin = harness_now();
    revoke_base(who);
    player_settle_all(who); /* what was right before the end is compared all the same */
    player_drop_groups(who);
    CHECK_OK(weft_limit_open(PROGRAM_SHRINK * who->program->limit_ms));
    shrunk = weft_group_shrink(who->base);
    weft_limit_close();
    if (!shrunk) {
        weft_status status = player_failed(who);
        check_failed_shrink(who, status, (harness_now() - begin) / 1000000);
        return false;
    }
    weft_keep(shrunk);
    check_shrunk(who, shrunk);
    if (who->base != who->world)
        weft_release(who->base);
    who->base = shrunk;
    who->chapter++;
    return true;
}

/* Does a fault come that others may notice? */
static bool may_fail(const program *p)
{
    for (int i = 0; i < p->faults; i++)
        if (p->fault[i].kind != FAULT_NONE && p->fault[i].kind != FAULT_STOP)
            return true;
    return false;
}

static void play(player *who)
{
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.meet_timeout_ms = 120000;
    opts.timeout_ms = who->program->limit_ms;
    weft_scope_open();
    who->world = who->base = weft_init(&opts);
    CHECK(who->world != NULL);
    who->rank = weft_rank(who->world);
    atomic_store(&page->rank[who->rank].pid, getpid());
    while (!take_chapter(who) && go_on(who) && who->chapter < PROGRAM_CHAPTERS)
        continue;
    say_gone(who, GONE_LEFT);
    player_settle_all(who);
    player_drop_groups(who);
    if (who->base != who->world)
        weft_release(who->base);
    int result = weft_finish(who->world);
    if (result && !may_fail(who->program))
        FAIL("weft_finish gives %d: %s", result, weft_last_error());
    weft_scope_close();
}

static int be_rank(int rank, void *arg)
{
    player who = {.program = arg, .page = page, .rank = rank};
    harness_reason[0] = 0;
    if (setjmp(harness_out) != HARNESS_PASS) {
        complain(&who, harness_reason);
        say_gone(&who, GONE_LEFT);
        return 1;
    }
    play(&who);
    page->rank[who.rank].done = 1;
    return 0;
}

static int be_process(int rank, void *arg)
{
    int result = be_rank(rank, arg);
    if (!result && __lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check()) {
        snprintf(page->rank[rank].complaint, sizeof page->rank[rank].complaint, "memory leaks");
        return 1;
    }
    return result;
}

/* The rank is told by weft_init. */
static int be_thread(void *arg)
{
    return be_rank(0, arg);
}

/* ---- a program ---- */

static int launch(program *p)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = p->ranks;
    opts.body = be_process;
    opts.arg = p;
    opts.flags = WEFT_LAUNCH_QUIET | WEFT_LAUNCH_NO_CAPTURE;
    return p->threads ? weft_spawn(p->ranks, be_thread, p) : weft_launch(&opts);
}

/* In a process of its own, so that what crashes takes nothing along. */
__attribute__((noreturn)) static void run_program(program *p)
{
    unsigned char before[1024], after[1024];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("WEFT_DEBUG", "NONE", 0);
    setenv("WEFT_KILL_GRACE", "600000", 1); /* survivors end by themselves */
    harness_descriptors(before, NULL);
    page->result = launch(p);
    if (page->result < 0)
        snprintf(page->why, sizeof page->why, "%s", weft_last_error());
    page->descriptor = harness_descriptors(after, before);
    _exit(0);
}

/* Ranks that stop are woken when it is time. */
static void wake(long long since[PROGRAM_RANKS])
{
    for (int rank = 0; rank < PROGRAM_RANKS; rank++) {
        program_rank *one = &page->rank[rank];
        long long ms = atomic_load(&one->stopped);
        if (!ms)
            continue;
        since[rank] = since[rank] ? since[rank] : harness_now();
        if (harness_now() - since[rank] < ms * 1000000)
            continue;
        atomic_store(&one->stopped, 0);
        since[rank] = 0;
        kill(atomic_load(&one->pid), SIGCONT);
    }
}

/* Kills what is left of the program, which are children of ours by now; how many. */
static int kill_rest(void)
{
    int count = 0, status;
    for (int rank = 0; rank < PROGRAM_RANKS; rank++) {
        int pid = atomic_load(&page->rank[rank].pid);
        if (pid && pid != getpid() && waitpid(pid, &status, WNOHANG) == 0)
            count += kill(pid, SIGKILL) == 0;
    }
    while (waitpid(-1, &status, 0) > 0)
        continue;
    return count;
}

/* Waits for the end of the program; false if it had to be killed, since it hangs. */
static bool watch(const program *p, pid_t process, int *status)
{
    long long since[PROGRAM_RANKS] = {0};
    long long until = harness_now() + (12 * p->limit_ms + 240000) * 1000000;
    int ended;
    while ((ended = waitpid(process, status, WNOHANG)) == 0 && harness_now() < until) {
        wake(since);
        rest(2000);
    }
    if (ended == 0)
        kill(process, SIGKILL);
    return ended != 0;
}

/* The first complaint of a rank; NULL: there is none. */
static const program_rank *first_complaint(const program *p, int *rank)
{
    const program_rank *first = NULL;
    for (int i = 0; i < p->ranks; i++) {
        const program_rank *one = &page->rank[i];
        if (one->complaint[0] && (!first || one->when < first->when)) {
            first = one;
            *rank = i;
        }
    }
    return first;
}

/* What a fault of this kind must have led to. */
static void check_outcome(const program *p, int rank, char *out, size_t room)
{
    const program_rank *one = &page->rank[rank];
    if (!one->done && atomic_load(&one->gone) != GONE_KILLED)
        snprintf(out, room, "rank %d has not come back: at chapter and step %d", rank,
                 atomic_load(&one->at));
    else if (!may_fail(p) && one->errors)
        snprintf(out, room, "rank %d: %d calls failed where there is no fault", rank, one->errors);
    else if (p->fault[0].kind == FAULT_MISMATCH && p->faults == 1 && !one->errors)
        snprintf(out, room, "rank %d has not seen the mismatch", rank);
}

/* Runs the program; writes what is wrong with it, or nothing. */
static void try_program(program *p, char *out, size_t room)
{
    int status = 0, rank = 0;
    memset(page, 0, sizeof *page);
    page->descriptor = -1;
    *out = 0;
    fflush(NULL);
    pid_t process = fork();
    if (process == 0)
        run_program(p);
    bool ended = process > 0 && watch(p, process, &status);
    int left = kill_rest();
    const program_rank *complaint = first_complaint(p, &rank);
    if (complaint)
        snprintf(out, room, "rank %d: %s", rank, complaint->complaint);
    else if (!ended)
        snprintf(out, room, "it hangs; rank 0 is at chapter and step %d",
                 atomic_load(&page->rank[0].at));
    else if (!WIFEXITED(status) || WEXITSTATUS(status))
        snprintf(out, room, "it crashed (status %x)", status);
    else if (page->result < 0)
        snprintf(out, room, "it could not be started: %s", page->why);
    else if (left)
        snprintf(out, room, "%d processes are left", left);
    else if (page->descriptor >= 0)
        snprintf(out, room, "descriptor %d is left open", page->descriptor);
    for (int i = 0; i < p->ranks && !*out; i++)
        check_outcome(p, i, out, room);
}

/* ---- many ---- */

typedef struct totals {
    long programs, findings, kinds[FAULT_KINDS], operations, errors, shrinks, left_out, mismatches;
    long long worst_ms; /* of a failed call beyond its limit */
} totals;

static void add(totals *all, const program *p)
{
    all->programs++;
    all->kinds[p->fault[0].kind]++;
    for (int rank = 0; rank < p->ranks; rank++) {
        const program_rank *one = &page->rank[rank];
        long long late = one->worst_ms - p->limit_ms;
        all->operations += one->operations;
        all->errors += one->errors;
        all->shrinks += one->shrinks;
        all->left_out += one->left_out;
        all->worst_ms = late > all->worst_ms ? late : all->worst_ms;
    }
}

static void tell(const totals *all)
{
    fprintf(stderr, "random_programs: %ld programs, %ld findings;", all->programs, all->findings);
    for (int kind = 0; kind < FAULT_KINDS; kind++)
        fprintf(stderr, " %s %ld,", fault_names[kind], all->kinds[kind]);
    fprintf(stderr,
            " %ld steps of ranks right, %ld calls failed as they should, latest %lld ms after the "
            "limit; %ld shrinks, %ld ranks left out, all gone\n",
            all->operations, all->errors, all->worst_ms, all->shrinks, all->left_out);
}

static void describe(const program *p, char *out, size_t room)
{
    int n = snprintf(out, room, "--seed %llu --count 1 --%s (%d ranks", (unsigned long long)p->seed,
                     p->threads ? "threads" : "processes", p->ranks);
    for (int i = 0; i < p->faults; i++) {
        const fault *f = &p->fault[i];
        n += snprintf(out + n, room - (size_t)n, "; %s", fault_names[f->kind]);
        if (f->kind == FAULT_MISMATCH)
            n += snprintf(out + n, room - (size_t)n, " %d", f->variant);
        n += snprintf(out + n, room - (size_t)n, " of rank %d in chapter %d, step %d", f->victim,
                      f->chapter, f->step);
    }
    snprintf(out + n, room - (size_t)n, ")");
}

/* Which ranks are threads: all, none, or (-1) those of every fourth program. */
static totals run_programs(uint64_t seed, long count, int threads, char *first, size_t room)
{
    totals all = {0};
    *first = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (long i = 0; i < count; i++) {
        char wrong[1600], text[512];
        program p =
            program_of(seed + (uint64_t)i, threads < 0 ? (seed + (uint64_t)i) % 4 == 3 : threads);
        try_program(&p, wrong, sizeof wrong);
        add(&all, &p);
        if (!*wrong)
            continue;
        all.findings++;
        describe(&p, text, sizeof text);
        fprintf(stderr, "random_programs %s: %s\n", text, wrong);
        if (!*first)
            snprintf(first, room, "%s: %s", text, wrong);
    }
    tell(&all);
    return all;
}

/* ThreadSanitizer does not follow forks with threads: ranks are threads there. */
TEST(test_random_programs)
{
    char first[1000];
    totals all = run_programs(values_seed(),
                              SANITIZED_THREAD   ? 25
                              : VALUES_SANITIZED ? 40
                                                 : 120,
                              SANITIZED_THREAD ? 1 : -1, first, sizeof first);
    if (all.findings)
        FAIL("%s", first);
}

int main(int argc, char **argv)
{
    char first[1000];
    uint64_t seed = 1;
    long count = 0;
    int threads = -1;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 2;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--count") && i + 1 < argc)
            count = strtol(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--threads") || !strcmp(argv[i], "--processes"))
            threads = !strcmp(argv[i], "--threads");
    }
    if (count)
        return run_programs(seed, count, threads, first, sizeof first).findings != 0;
    values_choose_seed();
    return harness_main(argc, argv);
}
