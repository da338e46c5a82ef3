/* What Rust knows of DPDK: plain numbers, texts and addresses. No structure of DPDK crosses over, so that its inline functions and
 * layouts, which change from release to release, are compiled here alone. The other half is src/rx/dpdk/abi.rs.
 *
 * Functions that can fail give 0 or a negative errno; what DPDK has logged meanwhile says why (gd_said). */
#ifndef GD_SHIM_H
#define GD_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* Drivers and their names. */
#define GD_NAME 64

/* What a port is and offers. */
struct gd_info {
	char driver[GD_NAME];
	/* Of the kernel's interface beneath, 0 where there is none. */
	uint32_t if_index;
	/* On PCI, else a virtual device. */
	uint32_t pci;
	uint32_t max_queues;
	uint32_t max_mtu;
	/* Packets are spread over queues by their addresses and ports. */
	uint32_t spreads;
	/* Packets have time stamps of the card. */
	uint32_t stamps;
	/* Packets are cut into two pools; behind so many kinds of headers, 0: at a fixed place. */
	uint32_t splits;
	uint8_t mac[6];
	uint16_t headers;
};

/* How a port is to receive. */
struct gd_setup {
	uint16_t queues;
	uint16_t descriptors;
	uint16_t mtu;
	/* Octets of a frame that go to `pool`, the rest to `bodies`; 0: all of it to `pool`. */
	uint16_t split;
	uint32_t stamps;
	/* Nothing is taken but what rules name: the kernel has the rest. */
	uint32_t isolated;
	void *pool;
	void *bodies;
};

/* A packet. */
struct gd_packet {
	const uint8_t *data;
	/* What was cut off, where it was. */
	const uint8_t *body;
	/* DPDK's own name for it, for gd_free. */
	void *buffer;
	/* Octets at `data`, and of the whole frame. */
	uint32_t here;
	uint32_t octets;
	/* The card's, 0 without. */
	uint64_t stamp;
	/* More pieces than two, or two although it was not to be cut. */
	uint32_t pieces;
	/* Octets at `body`. */
	uint32_t rest;
};

struct gd_counts {
	uint64_t packets;
	/* The card had no place for them. */
	uint64_t missed;
	/* How often the driver found no buffer: of most drivers no packets. */
	uint64_t no_buffer;
	uint64_t errors;
};

/* Addresses as in the packet. */
struct gd_rule {
	uint32_t destination;
	/* 0: any. */
	uint32_t source;
	uint16_t port;
	/* 0: none. */
	uint16_t vlan;
};

/* eal.c */
const char *gd_version(void);
const char *gd_drivers(void);
int gd_start(int argc, char **argv);
void gd_quiet(void);
void gd_loud(void);
void gd_listen(void);
size_t gd_said(char *text, size_t room);
int gd_addresses_are_virtual(void);
int gd_gpus(void);
int gd_thread_begin(void);
void gd_thread_end(void);

/* pool.c */
uint64_t gd_pool_octets(uint32_t count, uint32_t room);
int gd_pool_new(void *start, uint64_t octets, uint32_t count, uint32_t room, void **pool);
int gd_pool_over(void *start, uint64_t octets, uint32_t count, uint32_t room, void **pool);
void gd_pool_end(void *pool, void *start, uint64_t octets);
uint32_t gd_pool_left(const void *pool);
void gd_give_back(void *pool, const uint8_t *start, const uint32_t *at, uint32_t count);
int gd_reach(uint16_t port, int vfio, void *start, uint64_t octets);
void gd_unreach(uint16_t port, void *start, uint64_t octets);

/* port.c */
int gd_port_open(const char *spec, const char *name, uint16_t *port, struct gd_info *info);
int gd_port_start(uint16_t port, const struct gd_setup *setup);
void gd_port_stop(uint16_t port);
void gd_port_close(uint16_t port);
int gd_port_gone(uint16_t port);
int gd_link(uint16_t port);
uint32_t gd_receive(uint16_t port, uint16_t queue, struct gd_packet *packets, uint32_t most);
void gd_free(void *buffer);
int gd_send(uint16_t port, const uint8_t *frame, uint32_t octets);
int gd_counts(uint16_t port, struct gd_counts *counts);
int gd_clock(uint16_t port, uint64_t *ticks);
int gd_groups(uint16_t port, const uint8_t *addresses, uint32_t count);

/* flow.c */
int gd_rule(uint16_t port, const struct gd_rule *rule, void **handle, char *why, size_t room);
void gd_unrule(uint16_t port, void *handle);

#endif
