/* What the receiver asks of libibverbs, in plain structures: none of the library's own crosses into Rust, so its header is
 * read here alone. Calls that can fail fill `why`; what they give is freed by the call named beside. Nothing is safe for
 * several threads at once. The same declarations are in library.rs. */
#ifndef GDM_VERBS_SHIM_H
#define GDM_VERBS_SHIM_H

#include <stdint.h>

struct gdm_library;
struct gdm_device;
struct gdm_memory;
struct gdm_queue;
struct gdm_flow;

/* Why a call failed: its name, what errno was (0 where there is none), and more where there is more to say. */
struct gdm_failure {
	int32_t error;
	char call[60];
	char text[512];
};

/* What a device takes. */
struct gdm_limits {
	/* Receive entries of a queue, pieces of an entry, and completions of a queue, at most. */
	uint32_t entries;
	uint32_t pieces;
	uint32_t completions;
	uint32_t ports;
	/* It tells whether checksums are right. */
	uint32_t checksums;
	uint32_t reserved;
	/* Its counter in kHz, and which bits of stamps count; 0 where it does not say. */
	uint64_t clock_khz;
	uint64_t stamp_mask;
};

/* A plane of a ring, where entry `n` begins at `start + n * stride` and takes `octets`. */
struct gdm_plane {
	const struct gdm_memory *memory;
	uint64_t start;
	uint32_t stride;
	uint32_t octets;
};

/* Time stamps: none, of the device's counter, in nanoseconds of its clock. */
enum { GDM_STAMPS_NONE = 0, GDM_STAMPS_TICKS = 1, GDM_STAMPS_NANOS = 2 };

struct gdm_wish {
	struct gdm_plane head;
	/* No memory: entries have one piece. */
	struct gdm_plane body;
	uint32_t port;
	uint32_t entries;
	/* The best that is wanted. */
	uint32_t stamps;
	/* Completions are to be waited for. */
	uint32_t events;
};

struct gdm_completion {
	uint64_t stamp;
	uint32_t slot;
	uint32_t octets;
	/* 0: a packet. */
	uint32_t status;
	/* 1: checksums are right. */
	uint32_t checksums;
};

/* Packets that a queue gets. Addresses in network order. */
struct gdm_rule {
	uint8_t mac[6];
	/* 0: any. */
	uint16_t vlan;
	uint8_t destination[4];
	/* 0.0.0.0: any. */
	uint8_t source[4];
	uint16_t port;
	uint16_t device_port;
};

/* What happened to a device. */
enum { GDM_EVENT_OTHER = 0, GDM_EVENT_REMOVED = 1, GDM_EVENT_PORT_DOWN = 2, GDM_EVENT_PORT_UP = 3, GDM_EVENT_QUEUE = 4,
       GDM_EVENT_COMPLETIONS = 5 };

/* A library stays for good: providers that it has loaded cannot be unloaded. */
struct gdm_library *gdm_verbs_load(const char *path, struct gdm_failure *why);
/* Names of the devices, a line each; how many there are, or -1. */
int32_t gdm_verbs_devices(const struct gdm_library *library, char *names, uint32_t room, struct gdm_failure *why);
const char *gdm_verbs_status(const struct gdm_library *library, uint32_t status);

struct gdm_device *gdm_verbs_open(const struct gdm_library *library, const char *name, struct gdm_limits *limits,
				  struct gdm_failure *why);
void gdm_verbs_close(struct gdm_device *device);
/* The next event: 1, 0 where there is none, -1. `port` is that of a port's event. */
int32_t gdm_verbs_event(struct gdm_device *device, int32_t *event, int32_t *port);

struct gdm_memory *gdm_verbs_register(struct gdm_device *device, void *start, uint64_t octets, struct gdm_failure *why);
/* Of a dma-buf, by the address that entries name it by. */
struct gdm_memory *gdm_verbs_register_dmabuf(struct gdm_device *device, int32_t fd, uint64_t octets, uint64_t address,
					     struct gdm_failure *why);
void gdm_verbs_deregister(struct gdm_memory *memory);

/* `stamps` says which ones come. */
struct gdm_queue *gdm_verbs_queue(struct gdm_device *device, const struct gdm_wish *wish, uint32_t *stamps,
				  struct gdm_failure *why);
void gdm_verbs_end(struct gdm_queue *queue);
/* It is in error, or does not say. */
int32_t gdm_verbs_in_error(struct gdm_queue *queue);
/* Forgets what was posted and takes entries again; what is complete can no longer be polled. 0 or -1. */
int32_t gdm_verbs_reset(struct gdm_queue *queue, struct gdm_failure *why);
/* Gives entries to the device; how many it took. `error`: why not all. */
uint32_t gdm_verbs_post(struct gdm_queue *queue, const uint32_t *slots, uint32_t count, int32_t *error);
/* What is complete, at most so many; or a negative errno. */
int32_t gdm_verbs_poll(struct gdm_queue *queue, struct gdm_completion *to, uint32_t most);
/* The next completion is to be told. 0 or -1. */
int32_t gdm_verbs_arm(struct gdm_queue *queue, struct gdm_failure *why);
/* What becomes readable then; -1 where nothing was wished. */
int32_t gdm_verbs_descriptor(const struct gdm_queue *queue);
/* What was told is heard. */
void gdm_verbs_heard(struct gdm_queue *queue);

struct gdm_flow *gdm_verbs_attach(struct gdm_queue *queue, const struct gdm_rule *rule, struct gdm_failure *why);
/* 0, or errno. */
int32_t gdm_verbs_detach(struct gdm_flow *flow);

#endif
