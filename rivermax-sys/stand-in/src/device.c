/* Interfaces of the system in place of NIC ports, and clocks. */
#include "internal.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdatomic.h>
#include <sys/timex.h>
#include <time.h>

static atomic_bool has_ptp_clock;

/* By the exact address; on the loopback interface, by any address of its network. */
bool find_device(uint32_t ip, unsigned *index)
{
    struct ifaddrs *all, *at;
    if (!ip || getifaddrs(&all)) return false;
    *index = 0;
    for (at = all; at && !*index; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET) continue;
        uint32_t mask = 0xffffffffu;
        if (at->ifa_flags & IFF_LOOPBACK && at->ifa_netmask)
            mask = ((struct sockaddr_in *)at->ifa_netmask)->sin_addr.s_addr;
        uint32_t own = ((struct sockaddr_in *)at->ifa_addr)->sin_addr.s_addr;
        if ((own & mask) == (ip & mask)) *index = if_nametoindex(at->ifa_name);
    }
    freeifaddrs(all);
    return *index != 0;
}

rmx_status rmx_retrieve_device_iface_ipv4(rmx_device_iface *iface, const struct in_addr *ip)
{
    if (!iface) return RMX_INVALID_PARAM_1;
    if (!ip) return RMX_INVALID_PARAM_2;
    if (!initialised()) return RMX_NOT_INITIALIZED;
    rmx_status status = injected(ip->s_addr, "rmx_retrieve_device_iface_ipv4");
    if (status) return status;
    memset(iface, 0, sizeof *iface);
    iface->ip = *ip;
    return find_device(ip->s_addr, &iface->index) ? RMX_OK : RMX_NO_SUCH_DEVICE;
}

rmx_status rmx_use_ptp_clock(const rmx_ptp_clock_params *clock)
{
    if (!clock || !clock->has_device) return RMX_INVALID_PARAM_1;
    if (!initialised()) return RMX_NOT_INITIALIZED;
    rmx_status status = injected(clock->iface.ip.s_addr, "rmx_use_ptp_clock");
    if (status) return status;
    return atomic_exchange(&has_ptp_clock, true) ? RMX_BUSY : RMX_OK;
}

void forget_clock(void) { has_ptp_clock = false; }

rmx_status rmx_check_clock_steady(void)
{
    return initialised() ? injected(0, "rmx_check_clock_steady") : RMX_NOT_INITIALIZED;
}

uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The kernel's, where somebody has told it; else that of 2017 and since. */
int64_t tai_minus_utc_ns(void)
{
    struct timex t = {0};
    int64_t seconds = adjtimex(&t) >= 0 && t.tai > 0 ? t.tai : 37;
    return seconds * 1000000000;
}

rmx_status rmx_get_time(rmx_time_type type, uint64_t *ns)
{
    if (type != RMX_TIME_PTP && type != RMX_TIME_SYSTEM) return RMX_INVALID_PARAM_1;
    if (!ns) return RMX_INVALID_PARAM_2;
    if (!initialised()) return RMX_NOT_INITIALIZED;
    if (type == RMX_TIME_PTP && !has_ptp_clock) return RMX_NOT_INITIALIZED;
    *ns = now_ns(CLOCK_REALTIME) + (type == RMX_TIME_PTP ? (uint64_t)tai_minus_utc_ns() : 0);
    return RMX_OK;
}
