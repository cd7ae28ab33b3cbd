/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: launch/fleet.c, launch/fleet_hear.c, launch/far_host.c, launch/join.c, launch/uplink.c, launch/meeting_point.c, launch/job_frame.c */
/*
 * `weft run --hosts` on pretended hosts: what ranks find, how failures are told, and that nothing is
 * left behind on any host when a rank, a launcher, a shell or a host dies, or falls silent.
 */
#include "far_shell.h"

#include <weft/weft.h>

#include <signal.h>

enum { PATIENCE_MS = 45000 };

/* ---- what ranks do ---- */

/* Writes its number and its launcher's into a file, and sleeps. */
static int rank_sleeps(void)
{
    dprintf(1, "up %d %d\n", getpid(), getppid());
    for (int i = 0; i < 3000; i++)
        usleep(100000);
    return 0;
}

/* Meets the others and says where it stands. */
static int rank_meets(void)
{
    weft_group *world = weft_init(NULL);
    weft_group_barrier(world, WEFT_DEFAULT);
    dprintf(1, "rank %d of %d, local %d of %d\n", weft_rank(world), weft_size(world),
            weft_local_rank(world), weft_local_size(world));
    weft_group_barrier(world, WEFT_DEFAULT);
    return weft_finish(world);
}

static int rank_main(const char *what)
{
    if (!strcmp(what, "meet"))
        return rank_meets();
    if (!strcmp(what, "sleep"))
        return rank_sleeps();
    return 99;
}

/* ---- processes ---- */

static bool await_lines(const char *name, const char *part, int wanted)
{
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        slurp(name, out, sizeof out);
        if (count(out, part) >= wanted)
            return true;
        usleep(10000);
    }
    return false;
}

/* The processes that ranks named in `name`, "[r] up PID LAUNCHER". */
typedef struct crowd {
    int count;
    pid_t ranks[16], launchers[16];
} crowd;

static crowd read_crowd(const char *name)
{
    crowd all = {.count = 0};
    slurp(name, out, sizeof out);
    for (char *line = strtok(out, "\n"); line && all.count < 16; line = strtok(NULL, "\n")) {
        int rank, process, launcher;
        if (sscanf(line, "[%d] up %d %d", &rank, &process, &launcher) == 3) {
            all.ranks[rank] = process;
            all.launchers[rank] = launcher;
            all.count++;
        }
    }
    return all;
}

static bool is_gone(pid_t process)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "r");
    if (!file)
        return true;
    bool read = fgets(text, sizeof text, file);
    fclose(file);
    const char *end = strrchr(text, ')');
    return read && end && end[2] == 'Z';
}

/* All ranks and launchers of hosts have ended, in a while. */
static bool all_gone(const crowd *all)
{
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        int left = 0;
        for (int rank = 0; rank < all->count; rank++)
            left += !is_gone(all->ranks[rank]) || !is_gone(all->launchers[rank]);
        if (!left)
            return true;
        usleep(10000);
    }
    return false;
}

/* Starts a command in the background whose output goes to $D/name and .err, $D/name.rc; its process is
 * in $D/name.pid. */
static void start(const char *name, const char *command)
{
    CHECK_INT(shell("export WEFT_KILL_GRACE=300; rm -f $D/rc $D/%s; { %s; } >$D/%s 2>$D/%s.err & "
                    "echo $! >$D/%s.pid",
                    name, command, name, name, name),
              0);
}

static pid_t pid_of(const char *name)
{
    char file[64], text[32];
    snprintf(file, sizeof file, "%s.pid", name);
    slurp(file, text, sizeof text);
    return atoi(text);
}

static bool await_end(pid_t process)
{
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        if (is_gone(process))
            return true;
        usleep(10000);
    }
    return false;
}

/* ---- tests ---- */

TEST(test_launch_hosts_variables)
{
    write_far_shell("echo \"$*\" >>${0%/*}/words");
    CHECK_INT(shell(FAR "--hosts a:2,b:1 -x COLOUR=red sh -c 'echo "
                        "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
                        "$GROUP_RANK/$GROUP_WORLD_SIZE $WEFT_HOST_ID $COLOUR $WEFT_RESTART_COUNT; "
                        "echo at $MASTER_ADDR $WEFT_TOKEN; echo in $PWD'"),
              0);
    CHECK_CONTAINS(out, "[0] 0/3 0/2 0/2 pretended-a red 0\n");
    CHECK_CONTAINS(out, "[1] 1/3 1/2 0/2 pretended-a red 0\n");
    CHECK_CONTAINS(out, "[2] 2/3 0/1 1/2 pretended-b red 0\n");
    char *token = strstr(out, "[0] at ");
    char address[64], secret[80], folder_text[300], here[256];
    CHECK(token && sscanf(token, "[0] at %63s %79s", address, secret) == 2);
    CHECK_INT((int)strlen(secret), 64);
    CHECK_INT(count(out, secret), 3);
    CHECK_INT(count(out, address), 3);
    CHECK(getcwd(here, sizeof here));
    snprintf(folder_text, sizeof folder_text, "[2] in %s\n", here);
    CHECK_CONTAINS(out, folder_text);
    /* The secret, and what is run, never are on a command line. */
    slurp("words", out, sizeof out);
    CHECK_INT(count(out, "run --join\n"), 2);
    CHECK(!strstr(out, secret) && !strstr(out, "COLOUR"));
}

TEST(test_launch_hosts_default_ranks)
{
    write_far_shell("");
    CHECK_INT(shell("printf '# two hosts\\na slots=2\\n\\nb:1 # small\\nc\\n' >$D/hosts; " FAR
                    "-n 3 --hosts-file $D/hosts sh -c 'echo $WEFT_HOST_ID $WORLD_SIZE'"),
              0);
    CHECK_INT(count(out, "pretended-a 6\n"), 2);
    CHECK_INT(count(out, "pretended-b 6\n"), 1);
    CHECK_INT(count(out, "pretended-c 6\n"), 3);
    CHECK_INT(shell(FAR "--hosts one sh -c 'echo $MASTER_ADDR $WORLD_SIZE'"), 0);
    CHECK(!strcmp(out, "[0] 127.0.0.1 1\n"));
}

TEST(test_launch_hosts_wrong_use)
{
    write_far_shell("");
    CHECK_INT(shell(FAR "--hosts a,a true"), 125);
    CHECK_CONTAINS(err, "host a is named twice");
    CHECK_INT(shell(FAR "--hosts a:0 true"), 125);
    CHECK_CONTAINS(err, "\"0\" is not a number of ranks");
    CHECK_INT(shell(FAR "--hosts -oProxyCommand=x true"), 125);
    CHECK_CONTAINS(err, "is no name of a host");
    CHECK_INT(shell(FAR "--hosts 'a;b' true"), 125);
    CHECK_INT(shell("$W run --rsh 'ssh host' --hosts a true"), 125);
    CHECK_CONTAINS(err, "has no %h");
    CHECK_INT(shell("$W run --rsh 'ssh %%h' true"), 2);
    CHECK_CONTAINS(err, "need --hosts");
    CHECK_INT(shell(FAR "--hosts-file $D/nowhere true"), 125);
    CHECK_CONTAINS(err, "No such file");
    CHECK_INT(shell("$W run --rsh '/nowhere/shell %%h' --hosts a true"), 127);
    CHECK_CONTAINS(err, "host a: the remote shell \"/nowhere/shell\"");
}

TEST(test_launch_hosts_no_such_host)
{
    write_far_shell("[ $host = b ] && { echo 'no route to b' >&2; exit 255; }");
    CHECK_INT(shell(FAR "--hosts a:2,b:2 sleep 600"), 125);
    CHECK_CONTAINS(err, "host b: weft has not answered there; its remote shell ended with exit "
                        "code 255: no route to b");
}

TEST(test_launch_hosts_no_program)
{
    write_far_shell("[ $host = b ] && export PATH=/nowhere:$PATH");
    CHECK_INT(shell(FAR "--hosts a:2,b:2 weft-no-such-program"), 127);
    CHECK_CONTAINS(err, "there is no program \"weft-no-such-program\"");
    CHECK_INT(shell(FAR "--hosts a:2,b:2 --weft /nowhere/weft true"), 125);
    CHECK_CONTAINS(err, "weft has not answered there; its remote shell ended with exit code 127");
    CHECK_INT(
        shell("mkdir $D/gone; cd $D/gone; rmdir $D/gone; " FAR "--hosts a true || [ $? = 125 ]"),
        0);
}

TEST(test_launch_hosts_cause)
{
    write_far_shell("");
    CHECK_INT(shell("WEFT_KILL_GRACE=200 " FAR
                    "--hosts a:2,b:2 sh -c 'if [ $RANK = 2 ]; then echo no cheese >&2; "
                    "exit 3; fi; sleep 600'"),
              3);
    CHECK_CONTAINS(err, "weft: rank 2 of 4 failed first on host b: exit code 3\n");
    CHECK_CONTAINS(err, "weft:   | no cheese\n");
    CHECK_CONTAINS(err, "weft: then ranks 0 1 3: ended by SIGTERM (Terminated), on our request\n");
    /* Who only reports another's death is not the first, whatever came first. */
    CHECK_INT(shell("WEFT_KILL_GRACE=5000 " FAR
                    "--hosts a:1,b:1 sh -c 'if [ $RANK = 1 ]; then sleep 1; kill -ABRT $$; "
                    "fi; exit 40'"),
              128 + SIGABRT);
    CHECK_CONTAINS(err, "rank 1 of 2 failed first on host b: ended by SIGABRT");
}

TEST(test_launch_hosts_input)
{
    write_far_shell("");
    CHECK_INT(
        shell("seq 30000 | " FAR "--no-prefix --hosts a:2,b:1 cat | cksum; seq 30000 | cksum"), 0);
    char first[64], second[64];
    CHECK(sscanf(out, "%63[^\n]\n%63[^\n]", first, second) == 2);
    CHECK(!strcmp(first, second));
    CHECK_INT(shell(FAR "--hosts a,b cat </dev/null"), 0);
    CHECK(!*out);
    CHECK_INT(shell("seq 100000 | " FAR "--hosts a,b true"), 0);
}

TEST(test_launch_hosts_output)
{
    write_far_shell("echo banner; echo 'a warning of the shell' >&2");
    CHECK_INT(shell(FAR "--hosts a:2,b:2 --log-dir $D/logs --tee sh -c "
                        "'seq 20000; echo $RANK done >&2'"),
              0);
    CHECK_INT(count(out, "] 20000\n"), 4);
    CHECK_INT(count(err, "[3] 3 done\n"), 1);
    CHECK_INT(count(err, "weft: host a: banner\n"), 1);
    CHECK_INT(count(err, "weft: host b: a warning of the shell\n"), 1);
    CHECK_INT(shell("for r in 0 1 2 3; do cksum <$D/logs/rank_$r.out; done | uniq | wc -l; "
                    "seq 20000 | cksum; cksum <$D/logs/rank_3.out"),
              0);
    CHECK_CONTAINS(out, "1\n");
    CHECK_INT(shell(FAR "--hosts a,b sh -c 'seq 400000' | head -3 >/dev/null; cat $D/err"), 0);
}

TEST(test_launch_hosts_timeout)
{
    write_far_shell("");
    CHECK_INT(shell("WEFT_KILL_GRACE=200 " FAR "--hosts a:2,b:1 --timeout 4 $S sleep"), 124);
    CHECK_CONTAINS(err, "weft: the job's time is up");
    CHECK_CONTAINS(err, "weft: rank 2 is running\n");
    /* Also while hosts are being called. */
    write_far_shell("sleep 600");
    CHECK_INT(shell("WEFT_KILL_GRACE=200 " FAR "--hosts a,b --timeout 1 true"), 124);
    CHECK_INT(shell("WEFT_MEET_TIMEOUT=500 " FAR "--hosts a,b true"), 125);
    CHECK_CONTAINS(err, "host a: weft has not answered there within WEFT_MEET_TIMEOUT");
}

TEST(test_launch_hosts_restarts)
{
    write_far_shell("");
    CHECK_INT(shell(FAR "--hosts a,b --max-restarts 3 sh -c "
                        "'echo try $WEFT_RESTART_COUNT; [ $WEFT_RESTART_COUNT = 2 ]'"),
              0);
    CHECK_CONTAINS(out, "[1] try 2\n");
    CHECK_CONTAINS(err, "starting all ranks again (2 of 3)");
}

TEST(test_launch_hosts_signals)
{
    write_far_shell("");
    start("sig", "exec " FAR_PLAIN
                 "--hosts a,b sh -c 'trap \"echo usr\" USR1; echo ready; while :; do sleep 0.1; "
                 "done'");
    CHECK(await_lines("sig", "ready", 2));
    pid_t launcher = pid_of("sig");
    kill(launcher, SIGUSR1);
    CHECK(await_lines("sig", "usr", 2));
    kill(launcher, SIGTERM);
    CHECK(await_end(launcher));
    slurp("sig.err", err, sizeof err);
    CHECK_CONTAINS(err, "weft: interrupted by SIGTERM");
}

/* The launcher that the user called dies: nothing may stay on any host. */
TEST(test_launch_hosts_launcher_killed)
{
    write_far_shell("");
    start("up", "exec " FAR_PLAIN "--hosts a:2,b:2 $S sleep");
    CHECK(await_lines("up", "up ", 4));
    crowd all = read_crowd("up");
    kill(pid_of("up"), SIGKILL);
    CHECK(all_gone(&all));
}

/* A launcher of a host dies: its host is named, and nothing stays on the others. */
TEST(test_launch_hosts_join_killed)
{
    write_far_shell("");
    start("up", FAR_PLAIN "--hosts a:2,b:2 $S sleep; echo $? >$D/rc");
    CHECK(await_lines("up", "up ", 4));
    crowd all = read_crowd("up");
    kill(all.launchers[2], SIGKILL);
    CHECK(all_gone(&all));
    CHECK(await_lines("rc", "122\n", 1));
    slurp("up.err", err, sizeof err);
    CHECK_CONTAINS(
        err, "weft: host b (ranks 2-3) was lost first: its remote shell ended with exit code");
}

/* A launcher of a host hangs, as if the way to it were cut; its own ranks end when it goes on. */
TEST(test_launch_hosts_join_silent)
{
    write_far_shell("");
    start("up", "WEFT_LAUNCH_SILENCE=3000 " FAR_PLAIN "--hosts a:1,b:1 $S sleep; echo $? >$D/rc");
    CHECK(await_lines("up", "up ", 2));
    crowd all = read_crowd("up");
    kill(all.launchers[1], SIGSTOP);
    CHECK(await_lines("rc", "122\n", 1));
    slurp("up.err", err, sizeof err);
    CHECK_CONTAINS(err, "weft: host b (rank 1) was lost first: it has been silent for 3 s");
    kill(all.launchers[1], SIGCONT);
    CHECK(all_gone(&all));
}

/* The launcher hangs: hosts give their ranks up. */
TEST(test_launch_hosts_launcher_silent)
{
    write_far_shell("");
    start("up", "export WEFT_LAUNCH_SILENCE=3000; exec " FAR_PLAIN "--hosts a:1,b:1 $S sleep");
    CHECK(await_lines("up", "up ", 2));
    crowd all = read_crowd("up");
    pid_t launcher = pid_of("up");
    kill(launcher, SIGSTOP);
    CHECK(all_gone(&all));
    kill(launcher, SIGCONT);
    CHECK(await_end(launcher));
}

/* Ctrl-Z is no silence. */
TEST(test_launch_hosts_stopped_by_user)
{
    write_far_shell("");
    start("up", "export WEFT_LAUNCH_SILENCE=2000; exec " FAR_PLAIN "--hosts a:1,b:1 $S sleep");
    CHECK(await_lines("up", "up ", 2));
    crowd all = read_crowd("up");
    pid_t launcher = pid_of("up");
    kill(launcher, SIGTSTP);
    usleep(4000000);
    CHECK(!is_gone(all.ranks[0]) && !is_gone(all.ranks[1]));
    kill(launcher, SIGCONT);
    usleep(500000);
    CHECK(!is_gone(all.ranks[0]) && !is_gone(launcher));
    kill(launcher, SIGTERM);
    CHECK(all_gone(&all));
}

/* What a shell says instead of weft, and what weft hears instead of a launcher. */
TEST(test_launch_hosts_garbage)
{
    write_far_shell("[ $host = b ] && { head -c 100000 /dev/urandom; exit 0; }");
    CHECK_INT(shell(FAR "-q --hosts a:1,b:1 sleep 600"), 125);
    write_far_shell(
        "[ $host = b ] && { echo weft-join-1; head -c 100000 /dev/urandom; sleep 600; }");
    CHECK_INT(shell(FAR "--hosts a:1,b:1 sleep 600"), 125);
    CHECK_CONTAINS(err, "host b: what it says is not weft's");
    CHECK_INT(shell("head -c 100000 /dev/urandom | $W run --join >/dev/null"), 125);
    CHECK_CONTAINS(err, "what comes on standard input is not from `weft run --hosts`");
    CHECK_INT(shell("$W run --join </dev/null >/dev/null"), 125);
    CHECK_INT(shell("$W run --join true </dev/null"), 2);
}

/* Ranks on two hosts meet, and end. */
TEST(test_launch_hosts_meet)
{
    write_far_shell("");
    CHECK_INT(shell(FAR "--hosts a:2,b:2 $S meet"), 0);
    CHECK_INT(count(out, "rank 3 of 4, local 1 of 2\n"), 1);
    CHECK_INT(count(out, "rank 0 of 4, local 0 of 2\n"), 1);
    CHECK_INT(shell("WEFT_UCX=off " FAR "--hosts a:1,b:3 $S meet"), 0);
    CHECK_INT(count(out, "of 4, local"), 4);
    /* Two names of one machine: its ranks share memory all the same. */
    write_script("rsh", "shift; exec sh -c \"$*\"\n");
    CHECK_INT(shell(FAR "--hosts a:1,b:1 $S meet"), 0);
    CHECK_INT(count(out, "of 2, local"), 2);
    CHECK_INT(count(out, " of 2\n"), 2);
}

int main(int argc, char **argv)
{
    return launch_main(argc, argv, rank_main);
}
