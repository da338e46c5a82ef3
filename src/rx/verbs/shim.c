/* The calls of libibverbs that the receiver makes, late bound: the library is opened when it is asked for, and its functions
 * are looked up by name, so that one program runs with and without it. Calls that the header makes through a device's own
 * table (poll, post, flows, extended queues) need no symbol. */
#include "shim.h"

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Entries that are handed over in one call. */
#define BATCH 64
/* Completions that a queue without the extended calls gives at once. */
#define CLASSIC 32

#define CALLS(X)                                                                                                       \
	X(get_device_list)                                                                                             \
	X(free_device_list)                                                                                            \
	X(get_device_name)                                                                                             \
	X(open_device)                                                                                                 \
	X(close_device)                                                                                                \
	X(query_device)                                                                                                \
	X(get_async_event)                                                                                             \
	X(ack_async_event)                                                                                             \
	X(alloc_pd)                                                                                                    \
	X(dealloc_pd)                                                                                                  \
	X(reg_mr)                                                                                                      \
	X(dereg_mr)                                                                                                    \
	X(create_comp_channel)                                                                                         \
	X(destroy_comp_channel)                                                                                        \
	X(create_cq)                                                                                                   \
	X(destroy_cq)                                                                                                  \
	X(get_cq_event)                                                                                                \
	X(ack_cq_events)                                                                                               \
	X(create_qp)                                                                                                   \
	X(modify_qp)                                                                                                   \
	X(query_qp)                                                                                                    \
	X(destroy_qp)                                                                                                  \
	X(wc_status_str)

struct gdm_library {
#define FIELD(name) __typeof__(&ibv_##name) name;
	CALLS(FIELD)
#undef FIELD
	/* Since rdma-core 34; without it there is nvidia-peermem. */
	__typeof__(&ibv_reg_dmabuf_mr) reg_dmabuf_mr;
};

struct gdm_device {
	const struct gdm_library *library;
	struct ibv_context *context;
	struct ibv_pd *domain;
};

struct gdm_memory {
	const struct gdm_library *library;
	struct ibv_mr *region;
};

struct gdm_queue {
	const struct gdm_library *library;
	struct ibv_comp_channel *channel;
	struct ibv_cq *completions;
	/* The same with the extended calls; none of a device without them. */
	struct ibv_cq_ex *extended;
	struct ibv_qp *pair;
	uint32_t port;
	uint32_t stamps;
	struct gdm_plane planes[2];
	uint32_t keys[2];
	uint32_t pieces;
	struct ibv_recv_wr entries[BATCH];
	struct ibv_sge scatter[BATCH][2];
};

static void failed(struct gdm_failure *why, const char *call, int error)
{
	why->error = error;
	snprintf(why->call, sizeof why->call, "%s", call);
	why->text[0] = 0;
}

struct gdm_library *gdm_verbs_load(const char *path, struct gdm_failure *why)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		const char *text = dlerror();
		failed(why, "dlopen", 0);
		snprintf(why->text, sizeof why->text, "%s", text ? text : path);
		return NULL;
	}
	struct gdm_library *library = calloc(1, sizeof *library);
	if (!library) {
		failed(why, "calloc", ENOMEM);
		dlclose(handle);
		return NULL;
	}
	char missing[sizeof why->text] = "";
	size_t used = 0;
	int lacks = 0;
#define LOOK(name)                                                                                                     \
	*(void **)&library->name = dlsym(handle, "ibv_" #name);                                                        \
	if (!library->name) {                                                                                          \
		int more = snprintf(missing + used, sizeof missing - used, "%s%s", lacks ? ", " : "", "ibv_" #name);   \
		used += more > 0 && used + (size_t)more < sizeof missing ? (size_t)more : 0;                           \
		lacks = 1;                                                                                             \
	}
	CALLS(LOOK)
#undef LOOK
	*(void **)&library->reg_dmabuf_mr = dlsym(handle, "ibv_reg_dmabuf_mr");
	if (lacks) {
		failed(why, "dlsym", 0);
		memcpy(why->text, missing, sizeof missing);
		free(library);
		dlclose(handle);
		return NULL;
	}
	return library;
}

int32_t gdm_verbs_devices(const struct gdm_library *library, char *names, uint32_t room, struct gdm_failure *why)
{
	int count = 0;
	struct ibv_device **list = library->get_device_list(&count);
	if (!list) {
		failed(why, "ibv_get_device_list", errno);
		return -1;
	}
	size_t used = 0;
	for (int n = 0; n < count; n++) {
		int more = snprintf(names + used, room - used, "%s\n", library->get_device_name(list[n]));
		if (more < 0 || used + (size_t)more >= room) {
			names[used] = 0;
			break;
		}
		used += (size_t)more;
	}
	library->free_device_list(list);
	return count;
}

const char *gdm_verbs_status(const struct gdm_library *library, uint32_t status)
{
	return library->wc_status_str((enum ibv_wc_status)status);
}

/* As ibv_query_device_ex, whose inline form names a symbol of the library. */
static int query(const struct gdm_library *library, struct ibv_context *context, struct ibv_device_attr_ex *all)
{
	struct verbs_context *extended = verbs_get_ctx_op(context, query_device_ex);
	memset(all, 0, sizeof *all);
	if (extended) {
		int error = extended->query_device_ex(context, NULL, all, sizeof *all);
		if (error != EOPNOTSUPP && error != ENOSYS)
			return error;
		memset(all, 0, sizeof *all);
	}
	return library->query_device(context, &all->orig_attr);
}

static int without_waiting(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 ? flags : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

struct gdm_device *gdm_verbs_open(const struct gdm_library *library, const char *name, struct gdm_limits *limits,
				  struct gdm_failure *why)
{
	struct gdm_device *device = calloc(1, sizeof *device);
	if (!device) {
		failed(why, "calloc", ENOMEM);
		return NULL;
	}
	device->library = library;
	struct ibv_device **list = library->get_device_list(NULL);
	if (!list) {
		failed(why, "ibv_get_device_list", errno);
		free(device);
		return NULL;
	}
	failed(why, "ibv_get_device_list", ENODEV);
	for (int n = 0; list[n]; n++) {
		if (strcmp(library->get_device_name(list[n]), name) != 0)
			continue;
		errno = 0;
		device->context = library->open_device(list[n]);
		if (!device->context)
			failed(why, "ibv_open_device", errno);
		break;
	}
	library->free_device_list(list);
	if (!device->context) {
		free(device);
		return NULL;
	}
	struct ibv_device_attr_ex all;
	int error = query(library, device->context, &all);
	if (error) {
		failed(why, "ibv_query_device", error);
		goto close;
	}
	if (without_waiting(device->context->async_fd) < 0) {
		failed(why, "fcntl", errno);
		goto close;
	}
	device->domain = library->alloc_pd(device->context);
	if (!device->domain) {
		failed(why, "ibv_alloc_pd", errno);
		goto close;
	}
	memset(limits, 0, sizeof *limits);
	limits->entries = all.orig_attr.max_qp_wr > 0 ? (uint32_t)all.orig_attr.max_qp_wr : 0;
	limits->pieces = all.orig_attr.max_sge > 0 ? (uint32_t)all.orig_attr.max_sge : 0;
	limits->completions = all.orig_attr.max_cqe > 0 ? (uint32_t)all.orig_attr.max_cqe : 0;
	limits->ports = all.orig_attr.phys_port_cnt;
	limits->checksums = (all.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM) != 0;
	limits->clock_khz = all.hca_core_clock;
	limits->stamp_mask = all.completion_timestamp_mask;
	return device;
close:
	library->close_device(device->context);
	free(device);
	return NULL;
}

void gdm_verbs_close(struct gdm_device *device)
{
	device->library->dealloc_pd(device->domain);
	device->library->close_device(device->context);
	free(device);
}

int32_t gdm_verbs_event(struct gdm_device *device, int32_t *event, int32_t *port)
{
	struct ibv_async_event heard;
	if (device->library->get_async_event(device->context, &heard) != 0)
		return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
	*port = 0;
	switch (heard.event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		*event = GDM_EVENT_REMOVED;
		break;
	case IBV_EVENT_PORT_ERR:
		*event = GDM_EVENT_PORT_DOWN;
		*port = heard.element.port_num;
		break;
	case IBV_EVENT_PORT_ACTIVE:
		*event = GDM_EVENT_PORT_UP;
		*port = heard.element.port_num;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_WQ_FATAL:
		*event = GDM_EVENT_QUEUE;
		break;
	case IBV_EVENT_CQ_ERR:
		*event = GDM_EVENT_COMPLETIONS;
		break;
	default:
		*event = GDM_EVENT_OTHER;
	}
	device->library->ack_async_event(&heard);
	return 1;
}

static struct gdm_memory *registered(struct gdm_device *device, struct ibv_mr *region, const char *call,
				     struct gdm_failure *why)
{
	if (!region) {
		failed(why, call, errno);
		return NULL;
	}
	struct gdm_memory *memory = calloc(1, sizeof *memory);
	if (!memory) {
		device->library->dereg_mr(region);
		failed(why, "calloc", ENOMEM);
		return NULL;
	}
	memory->library = device->library;
	memory->region = region;
	return memory;
}

struct gdm_memory *gdm_verbs_register(struct gdm_device *device, void *start, uint64_t octets, struct gdm_failure *why)
{
	/* The function, not the macro of the same name, which asks for another symbol. */
	struct ibv_mr *region = (device->library->reg_mr)(device->domain, start, octets, IBV_ACCESS_LOCAL_WRITE);
	return registered(device, region, "ibv_reg_mr", why);
}

struct gdm_memory *gdm_verbs_register_dmabuf(struct gdm_device *device, int32_t fd, uint64_t octets, uint64_t address,
					     struct gdm_failure *why)
{
	if (!device->library->reg_dmabuf_mr) {
		failed(why, "ibv_reg_dmabuf_mr", ENOSYS);
		snprintf(why->text, sizeof why->text, "this libibverbs lacks it (rdma-core 34 and later have it)");
		return NULL;
	}
	struct ibv_mr *region =
		device->library->reg_dmabuf_mr(device->domain, 0, octets, address, fd, IBV_ACCESS_LOCAL_WRITE);
	return registered(device, region, "ibv_reg_dmabuf_mr", why);
}

void gdm_verbs_deregister(struct gdm_memory *memory)
{
	memory->library->dereg_mr(memory->region);
	free(memory);
}

/* The best queue of completions that there is: stamps as wished, else lesser ones, else the calls of old. */
static int completions(struct gdm_queue *queue, struct gdm_device *device, const struct gdm_wish *wish,
		       struct gdm_failure *why)
{
	static const uint64_t flags[] = {0, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
					 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
	uint32_t best = wish->stamps <= GDM_STAMPS_NANOS ? wish->stamps : GDM_STAMPS_NANOS;
	for (uint32_t stamps = best + 1; stamps-- > 0;) {
		struct ibv_cq_init_attr_ex attributes = {
			.cqe = wish->entries,
			.channel = queue->channel,
			.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | flags[stamps],
			.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
			.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
		};
		queue->extended = ibv_create_cq_ex(device->context, &attributes);
		if (queue->extended) {
			queue->completions = ibv_cq_ex_to_cq(queue->extended);
			queue->stamps = stamps;
			return 0;
		}
	}
	queue->completions =
		queue->library->create_cq(device->context, (int)wish->entries, NULL, queue->channel, 0);
	if (!queue->completions)
		failed(why, "ibv_create_cq", errno);
	return queue->completions ? 0 : -1;
}

/* Makes it take packets. */
static int ready(struct gdm_queue *queue, struct gdm_failure *why)
{
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)queue->port};
	int error = queue->library->modify_qp(queue->pair, &attributes, IBV_QP_STATE | IBV_QP_PORT);
	if (!error) {
		memset(&attributes, 0, sizeof attributes);
		attributes.qp_state = IBV_QPS_RTR;
		error = queue->library->modify_qp(queue->pair, &attributes, IBV_QP_STATE);
	}
	if (error)
		failed(why, "ibv_modify_qp", error);
	return error ? -1 : 0;
}

struct gdm_queue *gdm_verbs_queue(struct gdm_device *device, const struct gdm_wish *wish, uint32_t *stamps,
				  struct gdm_failure *why)
{
	const struct gdm_library *library = device->library;
	struct gdm_queue *queue = calloc(1, sizeof *queue);
	if (!queue) {
		failed(why, "calloc", ENOMEM);
		return NULL;
	}
	queue->library = library;
	queue->port = wish->port;
	queue->planes[0] = wish->head;
	queue->planes[1] = wish->body;
	queue->pieces = wish->body.memory ? 2 : 1;
	for (uint32_t n = 0; n < queue->pieces; n++)
		queue->keys[n] = queue->planes[n].memory->region->lkey;
	if (wish->events) {
		queue->channel = library->create_comp_channel(device->context);
		if (!queue->channel) {
			failed(why, "ibv_create_comp_channel", errno);
			goto channel;
		}
		if (without_waiting(queue->channel->fd) < 0) {
			failed(why, "fcntl", errno);
			goto completions;
		}
	}
	if (completions(queue, device, wish, why) != 0)
		goto completions;
	struct ibv_qp_init_attr attributes = {
		.send_cq = queue->completions,
		.recv_cq = queue->completions,
		.cap = {.max_recv_wr = wish->entries, .max_recv_sge = queue->pieces},
		.qp_type = IBV_QPT_RAW_PACKET,
	};
	queue->pair = library->create_qp(device->domain, &attributes);
	if (!queue->pair) {
		failed(why, "ibv_create_qp", errno);
		goto pair;
	}
	if (ready(queue, why) != 0)
		goto ready;
	*stamps = queue->stamps;
	return queue;
ready:
	library->destroy_qp(queue->pair);
pair:
	library->destroy_cq(queue->completions);
completions:
	if (queue->channel)
		library->destroy_comp_channel(queue->channel);
channel:
	free(queue);
	return NULL;
}

void gdm_verbs_end(struct gdm_queue *queue)
{
	queue->library->destroy_qp(queue->pair);
	/* What was told and not heard would be waited for. */
	gdm_verbs_heard(queue);
	queue->library->destroy_cq(queue->completions);
	if (queue->channel)
		queue->library->destroy_comp_channel(queue->channel);
	free(queue);
}

int32_t gdm_verbs_in_error(struct gdm_queue *queue)
{
	struct ibv_qp_attr attributes = {0};
	struct ibv_qp_init_attr made = {0};
	int error = queue->library->query_qp(queue->pair, &attributes, IBV_QP_STATE, &made);
	return error != 0 || attributes.qp_state == IBV_QPS_ERR;
}

int32_t gdm_verbs_reset(struct gdm_queue *queue, struct gdm_failure *why)
{
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RESET};
	int error = queue->library->modify_qp(queue->pair, &attributes, IBV_QP_STATE);
	if (error) {
		failed(why, "ibv_modify_qp", error);
		return -1;
	}
	/* Providers take a queue's completions away when it is reset; what is left is of no meaning. */
	struct gdm_completion left[CLASSIC];
	for (int round = 0; round < 4096 && gdm_verbs_poll(queue, left, CLASSIC) > 0; round++)
		;
	return ready(queue, why);
}

uint32_t gdm_verbs_post(struct gdm_queue *queue, const uint32_t *slots, uint32_t count, int32_t *error)
{
	uint32_t posted = 0;
	while (posted < count) {
		uint32_t n = count - posted < BATCH ? count - posted : BATCH;
		for (uint32_t i = 0; i < n; i++) {
			uint64_t slot = slots[posted + i];
			for (uint32_t piece = 0; piece < queue->pieces; piece++) {
				const struct gdm_plane *plane = &queue->planes[piece];
				queue->scatter[i][piece] = (struct ibv_sge){
					.addr = plane->start + slot * plane->stride,
					.length = plane->octets,
					.lkey = queue->keys[piece],
				};
			}
			queue->entries[i] = (struct ibv_recv_wr){
				.wr_id = slot,
				.next = i + 1 < n ? &queue->entries[i + 1] : NULL,
				.sg_list = queue->scatter[i],
				.num_sge = (int)queue->pieces,
			};
		}
		struct ibv_recv_wr *refused = NULL;
		int code = ibv_post_recv(queue->pair, queue->entries, &refused);
		if (code) {
			*error = code;
			return posted + (refused >= queue->entries && refused < queue->entries + n
						 ? (uint32_t)(refused - queue->entries)
						 : 0);
		}
		posted += n;
	}
	return posted;
}

static int32_t poll_classic(struct gdm_queue *queue, struct gdm_completion *to, uint32_t most)
{
	struct ibv_wc list[CLASSIC];
	int got = ibv_poll_cq(queue->completions, most < CLASSIC ? (int)most : CLASSIC, list);
	for (int n = 0; n < got; n++) {
		to[n] = (struct gdm_completion){
			.slot = (uint32_t)list[n].wr_id,
			.octets = list[n].byte_len,
			.status = list[n].status,
			.checksums = (list[n].wc_flags & IBV_WC_IP_CSUM_OK) != 0,
		};
	}
	return got < 0 ? -EIO : got;
}

int32_t gdm_verbs_poll(struct gdm_queue *queue, struct gdm_completion *to, uint32_t most)
{
	struct ibv_cq_ex *completions = queue->extended;
	if (most == 0)
		return 0;
	if (!completions)
		return poll_classic(queue, to, most);
	struct ibv_poll_cq_attr attributes = {0};
	int code = ibv_start_poll(completions, &attributes);
	if (code)
		/* Providers have negative codes of their own for queues that they cannot read. */
		return code == ENOENT ? 0 : code > 0 ? -code : -EINVAL;
	uint32_t got = 0;
	do {
		struct gdm_completion *one = &to[got];
		one->slot = (uint32_t)completions->wr_id;
		one->status = completions->status;
		one->octets = 0;
		one->stamp = 0;
		one->checksums = 0;
		if (completions->status != IBV_WC_SUCCESS)
			continue;
		one->octets = ibv_wc_read_byte_len(completions);
		one->checksums = (ibv_wc_read_wc_flags(completions) & IBV_WC_IP_CSUM_OK) != 0;
		if (queue->stamps == GDM_STAMPS_NANOS)
			one->stamp = ibv_wc_read_completion_wallclock_ns(completions);
		else if (queue->stamps == GDM_STAMPS_TICKS)
			one->stamp = ibv_wc_read_completion_ts(completions);
	} while (++got < most && (code = ibv_next_poll(completions)) == 0);
	ibv_end_poll(completions);
	return (int32_t)got;
}

int32_t gdm_verbs_arm(struct gdm_queue *queue, struct gdm_failure *why)
{
	int error = ibv_req_notify_cq(queue->completions, 0);
	if (error)
		failed(why, "ibv_req_notify_cq", error);
	return error ? -1 : 0;
}

int32_t gdm_verbs_descriptor(const struct gdm_queue *queue)
{
	return queue->channel ? queue->channel->fd : -1;
}

void gdm_verbs_heard(struct gdm_queue *queue)
{
	struct ibv_cq *of;
	void *context;
	while (queue->channel && queue->library->get_cq_event(queue->channel, &of, &context) == 0)
		queue->library->ack_cq_events(of, 1);
}

struct gdm_flow *gdm_verbs_attach(struct gdm_queue *queue, const struct gdm_rule *rule, struct gdm_failure *why)
{
	struct {
		struct ibv_flow_attr attributes;
		struct ibv_flow_spec_eth ethernet;
		struct ibv_flow_spec_ipv4 ip;
		struct ibv_flow_spec_tcp_udp udp;
	} __attribute__((packed, aligned(4))) all;
	memset(&all, 0, sizeof all);
	all.attributes.type = IBV_FLOW_ATTR_NORMAL;
	all.attributes.size = sizeof all;
	all.attributes.num_of_specs = 3;
	all.attributes.port = (uint8_t)rule->device_port;
	all.ethernet.type = IBV_FLOW_SPEC_ETH;
	all.ethernet.size = sizeof all.ethernet;
	memcpy(all.ethernet.val.dst_mac, rule->mac, sizeof rule->mac);
	memset(all.ethernet.mask.dst_mac, 0xff, sizeof rule->mac);
	if (rule->vlan) {
		all.ethernet.val.vlan_tag = htobe16(rule->vlan);
		all.ethernet.mask.vlan_tag = htobe16(0x0fff);
	}
	all.ip.type = IBV_FLOW_SPEC_IPV4;
	all.ip.size = sizeof all.ip;
	memcpy(&all.ip.val.dst_ip, rule->destination, 4);
	memset(&all.ip.mask.dst_ip, 0xff, 4);
	static const uint8_t any[4];
	if (memcmp(rule->source, any, 4) != 0) {
		memcpy(&all.ip.val.src_ip, rule->source, 4);
		memset(&all.ip.mask.src_ip, 0xff, 4);
	}
	all.udp.type = IBV_FLOW_SPEC_UDP;
	all.udp.size = sizeof all.udp;
	all.udp.val.dst_port = htobe16(rule->port);
	all.udp.mask.dst_port = 0xffff;
	/* The whole is packed, and each part lies at a multiple of two. */
	struct ibv_flow *flow = ibv_create_flow(queue->pair, (struct ibv_flow_attr *)(void *)&all);
	if (!flow)
		failed(why, "ibv_create_flow", errno);
	return (struct gdm_flow *)flow;
}

int32_t gdm_verbs_detach(struct gdm_flow *flow)
{
	return ibv_destroy_flow((struct ibv_flow *)flow);
}
