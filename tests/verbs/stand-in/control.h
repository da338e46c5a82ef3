/* Controls of the stand-in for libibverbs, for tests.
 *
 * The library stands in for libibverbs with an mlx5 card behind it that receives raw packets. It has the ABI of rdma-core's
 * <infiniband/verbs.h> (structures, call tables, inline functions), so a program opens it in place of libibverbs.so.1:
 *
 *   1. build it (`library::path()` in tests/verbs/library.rs, or `make -C tests/verbs/stand-in`);
 *   2. give its path to the backend in place of libibverbs.so.1, and dlopen the same path in the test: both get one instance;
 *   3. describe a card by stand_in_add() (or by the environment, for a program that is run as it is);
 *   4. open the backend, wait until it has its rules and entries (stand_in_count), bring frames by stand_in_inject(), by a
 *      capture, or by the interface that the card was given, and look at what comes out;
 *   5. close the backend, stand_in_remove() the card: 0 says that nothing was left open and nothing was misused.
 *
 * Cards are told apart by name. Tests that run side by side take names of their own and do not see each other's frames,
 * switches and counts (ibv_get_device_list shows all of them). Every function may be called from any thread.
 *
 * Frames are whole Ethernet frames without FCS. A frame goes to the queue whose rule matches, as in mlx5's tables: smaller
 * numbers of priority first; rules for multicast alone (by the first spec) after all others, whatever their number; at the same
 * priority the older rule; each queue with the very same rule gets its own copy. Without a rule it is the kernel's, and only
 * counted (with an interface the kernel has it in any case: no rule can take it away there).
 *
 * As on the card, a queue takes so many entries as it said when it was made (the next power of two), and an entry is free
 * again once its completion was polled. Not as on the card: posting to a queue in RESET, destroying a queue under its rules,
 * acknowledging too little and the like are counted as misuse besides the error that they give.
 *
 * For programs that are run as they are:
 *   VERBS_STAND_IN       cards, with semicolons between; each is a name and its words, with spaces between:
 *                        "mlx5_0 interface=rx0 sysfs=/tmp/sys no-wallclock; mlx5_1 interface=rx1 fail=ibv_create_qp:1"
 *                        They are there, with their files, once the library is loaded.
 *                        Words: the names of the flags below in small letters with hyphens (no-raw-packet, any-mac, ...),
 *                        interface=, net=, sysfs=, capture=FILE (played once, at its own pace, when the first rule is there),
 *                        fail=CALL:ERRNO (always), and the numbers of stand_in_device by name (max-qp-wr=64, memlock=65536,
 *                        clock-khz=1000000, wall-ahead-ns=37000000000, ...).
 *   VERBS_STAND_IN_CUDA  the CUDA driver's library in place of libcuda.so.1; empty: none
 */
#ifndef VERBS_STAND_IN_CONTROL_H
#define VERBS_STAND_IN_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#define STAND_IN_EXPORT __attribute__((visibility("default")))

enum {
    STAND_IN_NO_RAW_PACKET = 1 << 0,  /* ibv_create_qp of raw packets: EOPNOTSUPP */
    STAND_IN_INFINIBAND = 1 << 1,     /* the port's link layer is InfiniBand; raw packets as with NO_RAW_PACKET */
    STAND_IN_NO_CQ_EX = 1 << 2,       /* there is no ibv_create_cq_ex (EOPNOTSUPP): only ibv_create_cq, without stamps */
    STAND_IN_NO_STAMPS = 1 << 3,      /* no clock: ibv_create_cq_ex with stamps of either kind: EOPNOTSUPP */
    STAND_IN_NO_WALLCLOCK = 1 << 4,   /* the same for wall clock stamps alone; raw ones are there */
    STAND_IN_NO_DMABUF = 1 << 5,      /* ibv_reg_dmabuf_mr: EOPNOTSUPP */
    STAND_IN_PEERMEM = 1 << 6,        /* ibv_reg_mr takes memory of a GPU, as with nvidia-peermem; otherwise EFAULT */
    STAND_IN_NO_CSUM = 1 << 7,        /* no IBV_DEVICE_RAW_IP_CSUM: completions never say IBV_WC_IP_CSUM_OK */
    STAND_IN_NO_NET_RAW = 1 << 8,     /* no CAP_NET_RAW: raw ibv_create_qp and ibv_create_flow: EPERM */
    STAND_IN_NO_ACCESS = 1 << 9,      /* /dev/infiniband/uverbsN may not be opened: ibv_open_device: EACCES */
    STAND_IN_ANY_MAC = 1 << 10,       /* MAC addresses of rules are not compared: frames of the loopback interface have none.
                                       * Always so with a loopback interface */
    STAND_IN_TOO_LONG_DROPS = 1 << 11, /* a frame longer than its entry is dropped and counted, the entry stays: newer firmware.
                                       * Otherwise IBV_WC_LOC_LEN_ERR and the queue goes into error */
    STAND_IN_TOO_LONG_KEEPS = 1 << 12, /* IBV_WC_LOC_LEN_ERR, but the queue goes on */
    STAND_IN_PORT_DOWN = 1 << 13,     /* the port is down at first */
    STAND_IN_LONG_LENGTHS = 1 << 14,  /* completions without error say 65536 octets more than were written: no card does */
};

/* A card. Zeroes (and NULLs) stand for what a ConnectX-6 Dx says; only the name must be there. */
typedef struct stand_in_device {
    const char *name;      /* of the device: "mlx5_0"; at most 63 characters */
    const char *interface; /* Its frames arrive as long as the device is open, by a packet socket that ibv_open_device makes in
                            * the caller's network namespace (ENODEV: not there; EPERM: no CAP_NET_RAW). NULL: no frames */
    const char *net;       /* name of the interface in sysfs, without its frames; NULL: that of `interface` */
    const char *sysfs;     /* a folder (it is made) for its files, like those of /sys: class/infiniband/NAME/ (with ports/1/state,
                            * ports/1/hw_counters/out_of_buffer, device/net/INTERFACE, ...), class/net/INTERFACE/device,
                            * class/infiniband_verbs/uverbsN. ibdev_path and dev_path of the device lie there. NULL: none, and
                            * they are those below /sys */
    uint32_t flags;        /* STAND_IN_..., or-ed */
    uint32_t max_qp_wr;    /* 32768 */
    uint32_t max_sge;      /* 30 */
    uint32_t max_cqe;      /* 4194303 */
    uint32_t max_flows;    /* 65536; beyond: ENOMEM */
    uint32_t mtu;          /* of the port, octets: that of `interface`, else 1500. Frames longer by more than 18 octets do not
                            * arrive (counted: oversize) */
    uint32_t vendor_id;    /* 0x02c9: Mellanox */
    uint32_t vendor_part_id; /* 4125: ConnectX-6 Dx */
    uint64_t memlock;      /* octets of ordinary memory that can be registered; beyond: ENOMEM. 0: as many as wanted */
    uint64_t clock_khz;    /* hca_core_clock: 1000000 */
    uint64_t clock_mask;   /* completion_timestamp_mask: 0x7fffffffffffffff */
    uint64_t clock_origin_ns; /* UTC at which raw stamps are 0: 0 gives an hour before the card was added; 1 is 1970 */
    int64_t clock_ppb;     /* by how many parts in 10^9 the raw clock runs fast */
    int64_t wall_ahead_ns; /* what wall clock stamps of an interface's frames are ahead of UTC: 37000000000 for TAI */
} stand_in_device;

/* Adds a card to the list; 0, or an errno: EEXIST, EINVAL, or what making the files gave. */
STAND_IN_EXPORT int stand_in_add(const stand_in_device *device);

/* Takes a card out of the list, when no device is open on it any more (EBUSY otherwise). Its files stay. Says 0, ENODEV, or
 * EINVAL when calls were misused or objects were left. */
STAND_IN_EXPORT int stand_in_remove(const char *name);

/* Sets the flags of a card anew. What exists stays as it is. 0, or ENODEV. */
STAND_IN_EXPORT int stand_in_set_flags(const char *name, uint32_t flags);

/* The next `times` calls of this name (as in verbs.h: "ibv_reg_mr") on the card fail with this errno and do nothing else;
 * times UINT32_MAX: all; 0: none. Names: every ibv_alloc_, ibv_create_, ibv_destroy_, ibv_dealloc_, ibv_dereg_, ibv_modify_ and
 * ibv_query_ that the card has (ibv_create_cq and ibv_create_cq_ex are two, and so are ibv_create_qp and ibv_create_qp_ex),
 * ibv_open_device, ibv_reg_mr (ibv_reg_mr_iova2 as well), ibv_reg_dmabuf_mr, ibv_post_recv, ibv_post_wq_recv, ibv_poll_cq,
 * ibv_start_poll, ibv_req_notify_cq, ibv_get_cq_event, and ibv_get_device_list (of all cards: the name does not count). 0, or
 * ENODEV, EINVAL (no such call). */
STAND_IN_EXPORT int stand_in_fail(const char *name, const char *call, int error, uint32_t times);

/* A frame comes to the port, all of it before the call returns. `stamp_ns`: what the card's clock shows, in ns since 1970, as
 * wall clock stamps say it (raw stamps are made of it); 0: now. Says how many queues it was written to (0: none, see the
 * counts), or -1: no such card. */
STAND_IN_EXPORT int stand_in_inject(const char *name, const void *frame, size_t length, uint64_t stamp_ns);

/* All frames of a capture (pcap, Ethernet, either byte order, us or ns), one after the other, with its stamps. Says how many
 * there were, or -1: no such card, or the file cannot be read. */
STAND_IN_EXPORT int64_t stand_in_inject_capture(const char *name, const char *path);

/* The memory behind a dma-buf: host memory or that of a GPU. For ibv_reg_dmabuf_mr on this dma-buf (known by its inode) from now
 * on; NULL forgets it. Only needed where the stand-in cannot find it by itself, which it does in this order: the iova is an
 * address of CUDA's (a backend that gives the device address as iova needs nothing), or the fd can be mapped (udmabuf, memfd).
 * 0, or an errno. */
STAND_IN_EXPORT int stand_in_dmabuf(int fd, void *memory);

/* The cable: down gives IBV_EVENT_PORT_ERR and frames that come are lost; up gives IBV_EVENT_PORT_ACTIVE. No event where it
 * was so already. 0, or ENODEV. */
STAND_IN_EXPORT int stand_in_port(const char *name, int up);

/* The card is pulled out: IBV_EVENT_DEVICE_FATAL to every open device, entries are flushed (IBV_WC_WR_FLUSH_ERR), and all later
 * calls fail with EIO. Calls that destroy do as well, as in libibverbs, unless RDMAV_ALLOW_DISASSOC_DESTROY is set; what they
 * were to destroy counts as gone. The device leaves the list. 0, or ENODEV. */
STAND_IN_EXPORT int stand_in_pull(const char *name);

/* It is back and can be opened anew; what was open stays dead. 0, or ENODEV. */
STAND_IN_EXPORT int stand_in_put_back(const char *name);

/* Every queue of the card goes into error by itself: IBV_EVENT_QP_FATAL (IBV_EVENT_WQ_FATAL), and entries are flushed. 0, or
 * ENODEV. */
STAND_IN_EXPORT int stand_in_fatal(const char *name);

/* Every completion queue overruns, as if too little had been polled: IBV_EVENT_CQ_ERR, no more completions, its queues in
 * error. 0, or ENODEV. */
STAND_IN_EXPORT int stand_in_overrun(const char *name);

/* What there is of the card now, and what has happened since it was added. */
typedef struct stand_in_counts {
    /* Objects now. */
    uint64_t devices, pds, mrs, channels, cqs, qps, wqs, tables, flows;
    uint64_t posted;        /* entries that wait for frames, of all queues */
    uint64_t waiting;       /* completions that were not polled, of all completion queues */
    uint64_t registered;    /* octets */
    /* Frames. */
    uint64_t arrived;       /* at the port; those of the next four lines included */
    uint64_t kernel;        /* no rule */
    uint64_t lost_down;     /* the port was down, or the card pulled */
    uint64_t oversize;      /* longer than the MTU lets through */
    uint64_t malformed;     /* shorter than an Ethernet header */
    uint64_t source_lost;   /* lost before the card: the packet socket's buffer was full */
    uint64_t delivered;     /* completions without error */
    uint64_t octets;        /* of those */
    uint64_t out_of_buffer; /* matched, and no entry was posted */
    uint64_t not_ready;     /* matched, and the queue was not ready (not in RTR or RTS, or in error) */
    uint64_t too_long;      /* for their entry */
    uint64_t protection;    /* an entry that does not lie in registered memory of its protection domain */
    uint64_t flushed;       /* entries given back with IBV_WC_WR_FLUSH_ERR */
    uint64_t overruns;      /* of completion queues */
    /* Calls in a wrong order: see the head of the file; and the last one's description. */
    uint64_t misuse;
    char last_misuse[128];
} stand_in_counts;

/* 0, or ENODEV. */
STAND_IN_EXPORT int stand_in_count(const char *name, stand_in_counts *counts);

/* The rules of the card as text, in the order in which they match, one a line: "3 QP 65 eth dst 01:00:5e:00:00:01 type 0800 vlan
 * 5/0fff ipv4 src 10.0.0.1 dst 239.1.1.1 udp dst 5004" begins with the priority (16: multicast alone, 17: default rules); masks
 * that are not all ones follow a slash. Writes at most `room` octets with the last a zero, and says how many there would be
 * without it; -1: no such card. */
STAND_IN_EXPORT int64_t stand_in_rules(const char *name, char *text, size_t room);

#endif
