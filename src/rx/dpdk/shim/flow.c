/* Rules of a card: what goes to our first queue. */
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_flow.h>

/* One flow: Ethernet, a tag where it has one, IPv4, UDP. */
int gd_rule(uint16_t port, const struct gd_rule *rule, void **handle, char *why, size_t room)
{
	struct rte_flow_attr attributes = {.ingress = 1};
	struct rte_flow_item_vlan vlan = {0}, vlan_mask = {0};
	struct rte_flow_item_ipv4 ip, ip_mask;
	struct rte_flow_item_udp udp, udp_mask;
	struct rte_flow_action_queue queue = {.index = 0};
	struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &queue},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};
	struct rte_flow_item items[5];
	struct rte_flow_error error = {0};
	unsigned n = 0;
	int rc;

	memset(items, 0, sizeof(items));
	memset(&ip, 0, sizeof(ip));
	memset(&ip_mask, 0, sizeof(ip_mask));
	memset(&udp, 0, sizeof(udp));
	memset(&udp_mask, 0, sizeof(udp_mask));
	vlan.tci = rte_cpu_to_be_16(rule->vlan);
	vlan_mask.tci = rte_cpu_to_be_16(0x0fff);
	ip.hdr.dst_addr = rule->destination;
	ip_mask.hdr.dst_addr = UINT32_MAX;
	ip.hdr.src_addr = rule->source;
	ip_mask.hdr.src_addr = rule->source != 0 ? UINT32_MAX : 0;
	udp.hdr.dst_port = rte_cpu_to_be_16(rule->port);
	udp_mask.hdr.dst_port = UINT16_MAX;
	items[n++].type = RTE_FLOW_ITEM_TYPE_ETH;
	if (rule->vlan != 0)
		items[n++] = (struct rte_flow_item){RTE_FLOW_ITEM_TYPE_VLAN, &vlan, NULL, &vlan_mask};
	items[n++] = (struct rte_flow_item){RTE_FLOW_ITEM_TYPE_IPV4, &ip, NULL, &ip_mask};
	items[n++] = (struct rte_flow_item){RTE_FLOW_ITEM_TYPE_UDP, &udp, NULL, &udp_mask};
	items[n].type = RTE_FLOW_ITEM_TYPE_END;
	rc = rte_flow_validate(port, &attributes, items, actions, &error);
	*handle = rc == 0 ? rte_flow_create(port, &attributes, items, actions, &error) : NULL;
	if (*handle != NULL)
		return 0;
	rc = rc != 0 ? rc : -rte_errno;
	snprintf(why, room, "%s", error.message != NULL ? error.message : strerror(rc < 0 ? -rc : rc));
	return rc < 0 ? rc : -EINVAL;
}

void gd_unrule(uint16_t port, void *handle)
{
	struct rte_flow_error error;

	rte_flow_destroy(port, handle, &error);
}
