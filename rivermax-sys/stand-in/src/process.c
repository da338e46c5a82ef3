/* The process: initialisation, switches and injected answers. */
#include "internal.h"

#include <arpa/inet.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_DEVICES = 512, MAX_FAILURES = 128, NAME = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_initialised;
static atomic_size_t misuses;
static cpu_set_t cpus;
static bool has_cpus;

static struct {
    uint32_t ip;
    rmx_stand_in_device switches;
} devices[MAX_DEVICES];
static size_t device_count;
static rmx_stand_in_device everywhere;

static struct {
    uint32_t ip;
    char call[NAME];
    rmx_status status;
    size_t times;
} failures[MAX_FAILURES];
static atomic_size_t failure_count; /* entries in use, so that a poll need not lock when there are none */

bool initialised(void) { return is_initialised; }
void misuse(void) { misuses++; }
size_t rmx_stand_in_misuse(void) { return misuses; }

const char *rmx_get_version_string(void) { return "1.80.24 stand-in (no SDK, no NIC)"; }

rmx_status rmx_set_cpu_affinity(const rmx_cpu_mask *mask, size_t count)
{
    if (!mask) return RMX_INVALID_PARAM_1;
    if (count > CPU_SETSIZE) return RMX_INVALID_PARAM_2;
    if (is_initialised) return RMX_BUSY;
    pthread_mutex_lock(&lock);
    CPU_ZERO(&cpus);
    for (size_t cpu = 0; cpu < count; cpu++)
        if (mask[cpu / 64] >> cpu % 64 & 1) CPU_SET(cpu, &cpus);
    has_cpus = CPU_COUNT(&cpus) > 0;
    pthread_mutex_unlock(&lock);
    return RMX_OK;
}

void run_where_asked(pthread_t thread)
{
    pthread_mutex_lock(&lock);
    if (has_cpus) pthread_setaffinity_np(thread, sizeof cpus, &cpus);
    pthread_mutex_unlock(&lock);
}

static void read_switches(void)
{
    const char *text = getenv("RIVERMAX_STAND_IN"), *capture = getenv("RIVERMAX_STAND_IN_CAPTURE");
    everywhere.manual = capture && *capture;
    if (!text) return;
    char *copy = strdup(text), *rest = NULL;
    for (char *word = strtok_r(copy, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        long long number;
        if (!strcmp(word, "manual")) everywhere.manual = true;
        else if (!strcmp(word, "no-split")) everywhere.no_split = true;
        else if (!strcmp(word, "payload-first")) everywhere.payload_first = true;
        else if (sscanf(word, "idle-polls=%lld", &number) == 1) everywhere.idle_polls = (size_t)number;
        else if (sscanf(word, "extra-stride=%lld", &number) == 1) everywhere.extra_stride = (size_t)number;
        else if (sscanf(word, "capacity-multiple=%lld", &number) == 1) everywhere.capacity_multiple = (size_t)number;
        else if (sscanf(word, "after-detach=%lld", &number) == 1) everywhere.after_detach = (rmx_status)number;
        else if (sscanf(word, "raw-offset=%lld", &number) == 1) everywhere.raw_clock_offset = number;
        else fprintf(stderr, "rivermax stand-in: RIVERMAX_STAND_IN has no switch %s\n", word);
    }
    free(copy);
}

static void read_failures(void)
{
    const char *text = getenv("RIVERMAX_STAND_IN_FAIL");
    if (!text) return;
    char *copy = strdup(text), *rest = NULL;
    for (char *word = strtok_r(copy, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        char *number = strchr(word, '=');
        if (!number) continue;
        *number = 0;
        rmx_stand_in_fail(0, word, (rmx_status)atoi(number + 1), SIZE_MAX);
    }
    free(copy);
}

rmx_status rmx_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT, once_more = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_switches);
    pthread_once(&once_more, read_failures);
    rmx_status status = injected(0, "rmx_init");
    if (status) return status;
    bool before = false;
    return atomic_compare_exchange_strong(&is_initialised, &before, true) ? RMX_OK : RMX_BUSY;
}

rmx_status rmx_cleanup(void)
{
    if (!is_initialised) return RMX_NOT_INITIALIZED;
    if (streams_left() || rmx_stand_in_registered()) {
        misuse();
        return RMX_BUSY;
    }
    forget_queues();
    forget_clock();
    forget_stop();
    is_initialised = false;
    return RMX_OK;
}

void rmx_stand_in_set_device(uint32_t ip, const rmx_stand_in_device *device)
{
    pthread_mutex_lock(&lock);
    size_t at = 0;
    while (at < device_count && devices[at].ip != ip) at++;
    if (at < MAX_DEVICES) {
        devices[at].ip = ip;
        devices[at].switches = *device;
        if (at == device_count) device_count++;
    }
    pthread_mutex_unlock(&lock);
}

rmx_stand_in_device device_switches(uint32_t ip)
{
    pthread_mutex_lock(&lock);
    rmx_stand_in_device switches = everywhere;
    for (size_t at = 0; at < device_count; at++)
        if (devices[at].ip == ip) switches = devices[at].switches;
    pthread_mutex_unlock(&lock);
    return switches;
}

void rmx_stand_in_fail(uint32_t ip, const char *call, rmx_status status, size_t times)
{
    pthread_mutex_lock(&lock);
    size_t at = 0;
    while (at < MAX_FAILURES && failures[at].times) at++;
    if (at < MAX_FAILURES && times) {
        failures[at].ip = ip;
        failures[at].status = status;
        failures[at].times = times;
        snprintf(failures[at].call, NAME, "%s", call);
        failure_count++;
    }
    pthread_mutex_unlock(&lock);
}

rmx_status injected(uint32_t ip, const char *call)
{
    if (!failure_count) return RMX_OK;
    rmx_status status = RMX_OK;
    pthread_mutex_lock(&lock);
    for (size_t at = 0; at < MAX_FAILURES && !status; at++) {
        if (!failures[at].times || strcmp(failures[at].call, call) || (failures[at].ip && failures[at].ip != ip)) continue;
        status = failures[at].status;
        if (failures[at].times != SIZE_MAX && !--failures[at].times) failure_count--;
    }
    pthread_mutex_unlock(&lock);
    return status;
}
