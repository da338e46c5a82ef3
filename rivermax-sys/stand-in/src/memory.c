/* Memory that is registered with a device. */
#include "internal.h"

#include <stdlib.h>

struct region {
    struct region *next;
    rmx_mkey mkey;
    uint32_t ip;
    const uint8_t *addr;
    size_t length;
    int streams;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions;
static rmx_mkey last_mkey = 0x1000;

static struct region **find(rmx_mkey mkey)
{
    struct region **at = &regions;
    while (*at && (*at)->mkey != mkey) at = &(*at)->next;
    return at;
}

rmx_status rmx_register_memory(rmx_mem_region *region, const rmx_mem_registry_params *registry)
{
    if (!region || !region->addr || !region->length) return RMX_INVALID_PARAM_1;
    if (!registry) return RMX_INVALID_PARAM_2;
    if (!initialised()) return RMX_NOT_INITIALIZED;
    rmx_status status = injected(registry->iface.ip.s_addr, "rmx_register_memory");
    if (status) return status;
    if ((uintptr_t)region->addr % CACHE_LINE) return RMX_MEMORY_NOT_ALIGNED;
    struct region *made = calloc(1, sizeof *made);
    if (!made) return RMX_NO_HARDWARE_RESOURCES;
    made->ip = registry->iface.ip.s_addr;
    made->addr = region->addr;
    made->length = region->length;
    pthread_mutex_lock(&lock);
    made->mkey = region->mkey = ++last_mkey;
    made->next = regions;
    regions = made;
    pthread_mutex_unlock(&lock);
    return RMX_OK;
}

rmx_status rmx_deregister_memory(const rmx_mem_region *region, const rmx_device_iface *iface)
{
    if (!region) return RMX_INVALID_PARAM_1;
    if (!iface) return RMX_INVALID_PARAM_2;
    rmx_status status = injected(iface->ip.s_addr, "rmx_deregister_memory");
    if (status) return status;
    pthread_mutex_lock(&lock);
    struct region **at = find(region->mkey), *found = *at;
    if (!found || found->ip != iface->ip.s_addr || found->addr != region->addr) status = RMX_MEMORY_NOT_REGISTERED;
    else if (found->streams) status = RMX_BUSY;
    else {
        *at = found->next;
        free(found);
    }
    pthread_mutex_unlock(&lock);
    if (status) misuse();
    return status;
}

/* One mkey is of one NIC. */
bool registered(uint32_t ip, rmx_mkey mkey, const void *addr, size_t length)
{
    pthread_mutex_lock(&lock);
    const struct region *r = *find(mkey);
    const uint8_t *from = addr;
    bool is = r && r->ip == ip && from >= r->addr && length <= r->length && from - r->addr <= (ptrdiff_t)(r->length - length);
    pthread_mutex_unlock(&lock);
    return is;
}

rmx_status use_memory(rmx_mkey mkey, int by)
{
    pthread_mutex_lock(&lock);
    struct region *r = *find(mkey);
    if (r) r->streams += by;
    pthread_mutex_unlock(&lock);
    return r ? RMX_OK : RMX_MEMORY_NOT_REGISTERED;
}

size_t rmx_stand_in_registered(void)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (const struct region *r = regions; r; r = r->next) n++;
    pthread_mutex_unlock(&lock);
    return n;
}
