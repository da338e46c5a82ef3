/* Pools of packet buffers in memory that the caller has: DPDK's headers and the packets lie there side by side, one object after
 * the other without gaps, so that the place of a packet says which buffer it is in. */
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_memory.h>
#include <rte_mempool.h>

/* Buffers that a thread keeps by itself. */
#define CACHE 256
/* Objects follow one another across pages: addresses of the bus are those of the process, so pages need not be known. */
#define FLAGS (RTE_MEMPOOL_F_NO_IOVA_CONTIG | RTE_MEMPOOL_F_NO_SPREAD)

static uint32_t element(uint32_t room)
{
	return (uint32_t)(sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM + room);
}

static uint64_t page(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t gd_pool_octets(uint32_t count, uint32_t room)
{
	uint64_t octets = (uint64_t)count * rte_mempool_calc_obj_size(element(room), FLAGS, NULL);

	return (octets + page() - 1) / page() * page();
}

static void name_of(char *name, const char *what)
{
	static unsigned next;

	snprintf(name, RTE_MEMPOOL_NAMESIZE, "gd_%s_%u", what, __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED));
}

/* Makes memory known to DPDK: drivers look their regions up by address. */
static int register_memory(void *start, uint64_t octets)
{
	uint64_t pages = octets / page();
	rte_iova_t *addresses = rte_malloc(NULL, pages * sizeof(*addresses), 0);
	int rc;

	/* Without them drivers that want addresses of the bus have none. */
	if (addresses == NULL)
		return -ENOMEM;
	for (uint64_t n = 0; n < pages; n++)
		addresses[n] = (rte_iova_t)(uintptr_t)start + n * page();
	rc = rte_extmem_register(start, octets, addresses, (unsigned)pages, page());
	rte_free(addresses);
	return rc == 0 ? 0 : -rte_errno;
}

struct layout {
	const uint8_t *next;
	uint32_t size;
	int broken;
};

static void check(struct rte_mempool *pool, void *opaque, void *object, unsigned index)
{
	struct layout *layout = opaque;

	(void)index;
	if ((const uint8_t *)object - pool->header_size != layout->next)
		layout->broken = 1;
	layout->next += layout->size;
}

/* A pool of `count` packets of `room` octets in the whole of this memory, which begins at a page. */
int gd_pool_new(void *start, uint64_t octets, uint32_t count, uint32_t room, void **out)
{
	struct rte_pktmbuf_pool_private private = {.mbuf_data_room_size = (uint16_t)(RTE_PKTMBUF_HEADROOM + room)};
	struct layout layout = {.next = start};
	char name[RTE_MEMPOOL_NAMESIZE];
	struct rte_mempool *pool;
	int rc;

	if (RTE_PKTMBUF_HEADROOM + room > UINT16_MAX || octets < gd_pool_octets(count, room))
		return -EINVAL;
	name_of(name, "pool");
	pool = rte_mempool_create_empty(name, count, element(room), CACHE, sizeof(private), SOCKET_ID_ANY, FLAGS);
	if (pool == NULL)
		return -rte_errno;
	rc = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (rc == 0)
		rc = register_memory(start, octets);
	if (rc < 0) {
		rte_mempool_free(pool);
		return rc;
	}
	rte_pktmbuf_pool_init(pool, &private);
	rc = rte_mempool_populate_iova(pool, start, (rte_iova_t)(uintptr_t)start, octets, NULL, NULL);
	layout.size = pool->header_size + pool->elt_size + pool->trailer_size;
	if (rc >= 0) {
		rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
		rte_mempool_obj_iter(pool, check, &layout);
	}
	if (rc < 0 || (uint32_t)rc != count || layout.broken) {
		gd_pool_end(pool, start, octets);
		return rc < 0 ? rc : -ENOTSUP;
	}
	*out = pool;
	return 0;
}

/* A pool whose packets lie in this memory, and its headers in DPDK's: for memory that the processor cannot touch. */
int gd_pool_over(void *start, uint64_t octets, uint32_t count, uint32_t room, void **out)
{
	uint16_t stride = (uint16_t)(RTE_PKTMBUF_HEADROOM + room);
	struct rte_pktmbuf_extmem memory = {
		.buf_ptr = start, .buf_iova = (rte_iova_t)(uintptr_t)start, .buf_len = octets, .elt_size = stride};
	char name[RTE_MEMPOOL_NAMESIZE];
	struct rte_mempool *pool;
	int rc;

	if (RTE_PKTMBUF_HEADROOM + room > UINT16_MAX || (uint64_t)stride * count > octets || octets % page() != 0)
		return -EINVAL;
	rc = register_memory(start, octets);
	if (rc < 0)
		return rc;
	name_of(name, "body");
	pool = rte_pktmbuf_pool_create_extbuf(name, count, CACHE, 0, stride, SOCKET_ID_ANY, &memory, 1);
	if (pool == NULL) {
		rc = -rte_errno;
		rte_extmem_unregister(start, octets);
		return rc;
	}
	*out = pool;
	return 0;
}

void gd_pool_end(void *pool, void *start, uint64_t octets)
{
	rte_mempool_free(pool);
	rte_extmem_unregister(start, octets);
}

uint32_t gd_pool_left(const void *pool)
{
	return rte_mempool_avail_count(pool);
}

/* Gives back the packets that begin at these places of the pool's memory, whatever hangs on them too. */
void gd_give_back(void *opaque, const uint8_t *start, const uint32_t *at, uint32_t count)
{
	struct rte_mempool *pool = opaque;
	uint32_t size = pool->header_size + pool->elt_size + pool->trailer_size;
	struct rte_mbuf *buffers[64];

	for (uint32_t n = 0; n < count;) {
		uint32_t some = 0;

		for (; n < count && some < RTE_DIM(buffers); n++) {
			uint32_t index = at[n] / size;

			if (index < pool->populated_size)
				buffers[some++] = (struct rte_mbuf *)(uintptr_t)(start + (size_t)index * size + pool->header_size);
		}
		rte_pktmbuf_free_bulk(buffers, some);
	}
}

static struct rte_device *device_of(uint16_t port)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(port, &info) == 0 ? info.device : NULL;
}

/* Lets a port write there: by the IOMMU, where its driver asks for that. */
int gd_reach(uint16_t port, int vfio, void *start, uint64_t octets)
{
	struct rte_device *device = device_of(port);
	int rc;

	if (device == NULL)
		return -ENODEV;
	/* VFIO fails without a reason, and what others have left there is none. */
	rte_errno = 0;
	rc = rte_dev_dma_map(device, start, (uint64_t)(uintptr_t)start, octets);
	if (rc == 0)
		return 0;
	/* Virtual devices have no such call, nor have drivers that tell their card of a pool by themselves (mlx4, mana), and need none. */
	if (!vfio && rte_errno == ENOTSUP)
		return 0;
	return -(rte_errno != 0 ? rte_errno : EIO);
}

void gd_unreach(uint16_t port, void *start, uint64_t octets)
{
	struct rte_device *device = device_of(port);

	if (device != NULL)
		rte_dev_dma_unmap(device, start, (uint64_t)(uintptr_t)start, octets);
}
