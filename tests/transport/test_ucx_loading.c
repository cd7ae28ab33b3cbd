/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/ucx/library.c, backends/ucx/settings.c, backends/ucx/ucx.c */
/*
 * What becomes of a machine without UCX, with one that is too old or too new, or that lacks a function,
 * on stand-ins; and that the real one leaves the program's signals and munmap alone.
 */
#include "fault.h"
#include "harness.h"

#include "backends/ucx/settings.h"
#include "backends/ucx/ucx.h"
#include "backends/ucx/wire.h"
#include "base/os/environ.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "symm/backend.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <weft/weft.h>

static struct {
    unsigned major, minor;
    const char *lacks;
    const char *signals, *events; /* what the environment said while it was loaded */
    int disabled;
} stand_in;
static weft_i_os table;

static void tell_version(unsigned *major, unsigned *minor, unsigned *release)
{
    *major = stand_in.major;
    *minor = stand_in.minor;
    *release = 7;
}

static void disable_signals(void)
{
    stand_in.disabled++;
}

static void *find(void *library, const char *name)
{
    void *found = &stand_in; /* never called */
    void (*version)(unsigned *, unsigned *, unsigned *) = tell_version;
    void (*disable)(void) = disable_signals;
    (void)library;
    if (stand_in.lacks && !strcmp(name, stand_in.lacks))
        return NULL;
    if (!strcmp(name, "ucp_get_version"))
        memcpy(&found, &version, sizeof found);
    if (!strcmp(name, "ucs_debug_disable_signals"))
        memcpy(&found, &disable, sizeof found);
    return found;
}

static void *open_library(const char *name)
{
    (void)name;
    stand_in.signals = getenv("UCX_ERROR_SIGNALS");
    stand_in.events = getenv("UCX_MEM_EVENTS");
    return &stand_in;
}

static void *open_nothing(const char *name)
{
    (void)name;
    return NULL;
}

/* The status of a load from that stand-in, and its message. */
static weft_status load_from(void *(*open)(const char *), char *told, size_t bytes)
{
    const weft_i_ucx *ucx;
    const char *own = getenv("WEFT_UCX_LIBRARY");
    char *kept = own ? strdup(own) : NULL;
    unsetenv("WEFT_UCX_LIBRARY");
    table = weft_i_os_linux;
    table.dlopen = open;
    table.dlsym = find;
    weft_i_ucx_forget();
    atomic_store_explicit(&weft_i_os_now, &table, memory_order_relaxed);
    weft_status status = weft_i_ucx_load(&ucx);
    atomic_store_explicit(&weft_i_os_now, &weft_i_os_linux, memory_order_relaxed);
    snprintf(told, bytes, "%s", status < 0 ? weft_last_error() : "");
    weft_i_ucx_forget();
    weft_clear_error();
    if (kept)
        setenv("WEFT_UCX_LIBRARY", kept, 1);
    free(kept);
    return status;
}

TEST(test_ucx_loading_refusals)
{
    static const struct {
        unsigned major, minor;
        const char *lacks, *told;
    } rows[] = {
        {1, 12, NULL, "libucp.so.0 is UCX 1.12; 1.13 is the oldest that will do"},
        {0, 99, NULL, "libucp.so.0 is UCX 0.99; 1.13 is the oldest that will do"},
        {2, 0, NULL,
         "libucp.so.0 is UCX 2.0, of which this weft knows nothing; 1.13 and later 1.x will do"},
        {1, 20, "ucp_am_send_nbx", "libucp.so.0, UCX 1.20.7, has no ucp_am_send_nbx"},
        {1, 13, "ucs_status_string", "libucp.so.0, UCX 1.13.7, has no ucs_status_string"},
        {1, 13, "ucp_get_version", "libucp.so.0 does not tell its version"}};
    char told[256];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        stand_in.major = rows[i].major;
        stand_in.minor = rows[i].minor;
        stand_in.lacks = rows[i].lacks;
        CHECK_INT(load_from(open_library, told, sizeof told), WEFT_ERR_UNSUPPORTED);
        CHECK_CONTAINS(told, rows[i].told);
    }
    CHECK_INT(load_from(open_nothing, told, sizeof told), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(told, "libucp.so.0 cannot be loaded: UCX is not installed, or WEFT_UCX_LIBRARY "
                         "should say where");
    setenv("WEFT_UCX", "off", 1);
    CHECK_INT(load_from(open_library, told, sizeof told), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(told, "WEFT_UCX is off");
    unsetenv("WEFT_UCX");
}

/* What is lent to it, unless the user has said something. */
TEST(test_ucx_loading_environment)
{
    char told[256];
    stand_in.major = 1;
    stand_in.minor = 13;
    stand_in.lacks = NULL;
    stand_in.disabled = 0;
    unsetenv("UCX_ERROR_SIGNALS");
    CHECK_INT(load_from(open_library, told, sizeof told), WEFT_OK);
    CHECK(stand_in.signals && !*stand_in.signals && !strcmp(stand_in.events, "n"));
    CHECK(!getenv("UCX_ERROR_SIGNALS") && !getenv("UCX_MEM_EVENTS"));
    CHECK_INT(stand_in.disabled, 1);
    setenv("UCX_ERROR_SIGNALS", "FPE", 1);
    CHECK_INT(load_from(open_library, told, sizeof told), WEFT_OK);
    CHECK(!strcmp(stand_in.signals, "FPE"));
    CHECK_INT(stand_in.disabled, 1);
    unsetenv("UCX_ERROR_SIGNALS");
    stand_in.lacks = "ucs_debug_disable_signals";
    CHECK_INT(load_from(open_library, told, sizeof told), WEFT_OK);
    CHECK_INT(stand_in.disabled, 1);
}

TEST(test_ucx_loading_transports)
{
    static const char *const rows[][2] = {{NULL, "^sm"},          {"", "^sm"},
                                          {"all", "^sm"},         {"sm,shm", "^sm"},
                                          {"tcp", "tcp"},         {"tcp,sm,self", "tcp,self"},
                                          {"posix,rc,cma", "rc"}, {"small,tcp", "small,tcp"},
                                          {"^tcp", "^tcp,sm"}};
    char out[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_i_ucx_transports(rows[i][0], out, sizeof out);
        CHECK(!strcmp(out, rows[i][1]));
    }
}

/* Which settings were made. */
static struct {
    char text[1024];
    weft_i_ucs_status status;
} made;

static weft_i_ucs_status note_setting(weft_i_ucp_config config, const char *name, const char *value)
{
    size_t used = strlen(made.text);
    (void)config;
    snprintf(made.text + used, sizeof made.text - used, "%s=%s ", name, value);
    return made.status;
}

static const char *sentence(weft_i_ucs_status status)
{
    return status == -12 ? "No such element" : "?";
}

TEST(test_ucx_loading_settings)
{
    weft_i_ucx ucx = {.ucp_config_modify = note_setting, .ucs_status_string = sentence};
    made.text[0] = 0;
    CHECK_OK(weft_i_ucx_set(&ucx, NULL, "lo", false));
    CHECK(!strcmp(made.text, "TLS=^sm NET_DEVICES=lo KEEPALIVE_INTERVAL=inf RNDV_THRESH=inf "
                             "ZCOPY_THRESH=inf "));
    made.text[0] = 0;
    CHECK_OK(weft_i_ucx_set(&ucx, NULL, NULL, true));
    CHECK(!strcmp(made.text, "TLS=^sm KEEPALIVE_INTERVAL=inf "));
    made.text[0] = 0;
    setenv("UCX_RNDV_THRESH", "1m", 1); /* the user's own */
    setenv("UCX_TCP_CONN_NB", "n", 1);
    setenv("UCX_NET_DEVICES", "eth7", 1);
    CHECK_OK(weft_i_ucx_set(&ucx, NULL, "lo", false));
    CHECK(!strstr(made.text, "RNDV") && !strstr(made.text, "NET_DEVICES"));
    const char *list[WEFT_I_UCX_LENT];
    setenv("UCX_TCP_TX_SEG_SIZE", "8k", 1);
    CHECK(weft_i_ucx_lend(list));
    CHECK(!strcmp(getenv("UCX_TCP_CONN_NB"), "y")); /* for this one weft knows better */
    CHECK(!strcmp(getenv("UCX_TCP_TX_SEG_SIZE"), "8k"));
    CHECK(!strcmp(getenv("UCX_TCP_RX_SEG_SIZE"), "256k"));
    weft_i_environ_restore();
    CHECK(!strcmp(getenv("UCX_TCP_CONN_NB"), "n") && !getenv("UCX_TCP_RX_SEG_SIZE"));
    unsetenv("UCX_TCP_TX_SEG_SIZE");
    unsetenv("UCX_RNDV_THRESH");
    unsetenv("UCX_TCP_CONN_NB");
    unsetenv("UCX_NET_DEVICES");
    (void)weft_i_ucx_has_rdma(); /* of this machine, whatever it has */
    CHECK(weft_i_ucx_has_interface("lo") && !weft_i_ucx_has_interface("nonsense0"));
    CHECK(!weft_i_ucx_has_interface("") && !weft_i_ucx_has_interface("../net/lo"));
}

static void hear_nothing(void *arg, const void *head, const void *data, size_t bytes)
{
    (void)arg, (void)head, (void)data, (void)bytes;
}

static void fear_nothing(void *arg, int peer, weft_status why, const char *text)
{
    (void)arg, (void)peer, (void)why, (void)text;
}

/* In a process of its own: is anything of the program different afterwards?  Its exit status. */
static int look_at_program(void)
{
    enum { SIGNALS = 65 };
    static struct sigaction before[SIGNALS], after[SIGNALS];
    unsigned char code[16], *munmap_at = NULL;
    void *found = dlsym(RTLD_DEFAULT, "munmap"), *wire = NULL;
    const weft_i_ucx *ucx;
    memcpy(&munmap_at, &found, sizeof found);
    memcpy(code, munmap_at, sizeof code);
    for (int i = 1; i < SIGNALS; i++)
        sigaction(i, NULL, &before[i]);
    if (weft_i_ucx_load(&ucx) < 0)
        return 77;
    weft_i_transport_opts opts = {.ranks = 1, .interface = "lo"};
    if (weft_i_ucx_transport.open(&opts, &wire) != WEFT_ERR_INVALID_ARG) /* nobody listens */
        return 3;
    opts.on_message = hear_nothing;
    opts.on_fault = fear_nothing;
    if (weft_i_ucx_transport.open(&opts, &wire) < 0)
        return 4;
    for (int round = 0; round < 2; round++) {
        for (int i = 1; i < SIGNALS; i++) {
            sigaction(i, NULL, &after[i]);
            if (before[i].sa_handler != after[i].sa_handler ||
                before[i].sa_flags != after[i].sa_flags)
                return 100 + i;
        }
        if (memcmp(code, munmap_at, sizeof code))
            return 6;
        if (!round)
            weft_i_ucx_transport.close(wire);
    }
    return getenv("UCX_ERROR_SIGNALS") || getenv("UCX_MEM_EVENTS") ? 7 : 0;
}

TEST(test_ucx_loading_leaves_program)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (!child)
        _exit(look_at_program());
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        SKIP("no libucp.so.0 (Debian: libucx0)");
    CHECK_INT(WEXITSTATUS(status), 0);
}

/* Everything that allocates, once. */
static weft_status use(char *memory, size_t bytes)
{
    const weft_i_transport *ucx = &weft_i_ucx_transport;
    weft_i_transport_opts opts = {
        .ranks = 2, .interface = "lo", .on_message = hear_nothing, .on_fault = fear_nothing};
    unsigned char address[WEFT_I_TRANSPORT_ADDRESS_BYTES], key[WEFT_I_TRANSPORT_KEY_BYTES];
    size_t key_bytes = sizeof key;
    void *wire, *mapped = NULL, *far = NULL;
    weft_i_sent sent = {.done = NULL};
    WEFT_TRY(ucx->open(&opts, &wire));
    /* Its own address will do for the other: nothing is sent. */
    weft_status status =
        ucx->connect(wire, 1, address, ucx->address(wire, address, sizeof address));
    if (status == WEFT_OK)
        status = ucx->map(wire, memory, bytes, key, &key_bytes, &mapped);
    if (status == WEFT_OK)
        status = ucx->reach(wire, 1, key, key_bytes, &far);
    if (status == WEFT_OK)
        status = ucx->expect(wire, 1, 7, memory, (size_t)1 << 30, &sent);
    ucx->leave(wire, far);
    ucx->unmap(wire, mapped);
    ucx->close(wire);
    return status;
}

static int use_without_memory(void)
{
    static char memory[4096];
    const weft_i_ucx *ucx;
    if (weft_i_ucx_load(&ucx) < 0)
        return 77;
    if (use(memory, sizeof memory) != WEFT_IN_PROGRESS)
        return 3;
    for (int n = 1; n < 100; n++) {
        fault_arm(n);
        weft_status status = use(memory, sizeof memory);
        bool fired = fault_disarm();
        if (!fired)
            return n > 5 && status == WEFT_IN_PROGRESS ? 0 : 4;
        if (status >= 0 && strcmp(fault_name, "open") && strcmp(fault_name, "read"))
            return 5; /* files alone may be missing */
    }
    return 6;
}

TEST(test_ucx_loading_without_memory)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (!child)
        _exit(use_without_memory());
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        SKIP("no libucp.so.0 (Debian: libucx0)");
    CHECK_INT(WEXITSTATUS(status), 0);
}

/* What `weft info` says, and what becomes of an interface that is not there. */
static int look_at_backend(char *told, size_t bytes)
{
    weft_backend_info info;
    void *wire;
    for (int i = 0; i < weft_backend_count(); i++)
        if (weft_backend_describe(i, &info) == WEFT_OK && !strcmp(info.name, "ucx"))
            break;
    snprintf(told, bytes, "%s %s %s", info.name, info.device, info.reason);
    if (!info.usable)
        return 77;
    weft_i_transport_opts opts = {.ranks = 1, .interface = "nonsense0"};
    opts.on_message = hear_nothing;
    opts.on_fault = fear_nothing;
    weft_status status = weft_i_ucx_transport.open(&opts, &wire);
    snprintf(told + strlen(told), bytes - strlen(told), " | %s", weft_last_error());
    return status == WEFT_ERR_NOT_FOUND && !wire ? 0 : 3;
}

TEST(test_ucx_loading_backend)
{
    int status;
    char *told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(told != MAP_FAILED);
    fflush(stdout);
    pid_t child = fork();
    if (!child)
        _exit(look_at_backend(told, 4096));
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK_CONTAINS(told, "ucx cpu ");
    if (WEXITSTATUS(status) == 77)
        CHECK_CONTAINS(told, "WEFT_UCX");
    if (WEXITSTATUS(status) == 0)
        CHECK_CONTAINS(told, "messages between hosts by ");
    CHECK(WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 0);
    munmap(told, 4096);
    const weft_i_backend *backend = weft_i_backend_named("ucx");
    CHECK(backend && backend->transport == &weft_i_ucx_transport && !backend->memory &&
          !backend->carry && !backend->device_memory);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
