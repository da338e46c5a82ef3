/* The flow table. */
#include "internal.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdlib.h>

/* --- from the program's specs --- */

static bool read_eth(const struct ibv_flow_spec_eth *spec, struct rule *rule)
{
    const struct ibv_flow_eth_filter *from[] = {&spec->val, &spec->mask};
    struct headers *to[] = {&rule->val, &rule->mask};
    for (int i = 0; i < 2; i++) {
        memcpy(to[i]->dst_mac, from[i]->dst_mac, 6);
        memcpy(to[i]->src_mac, from[i]->src_mac, 6);
        to[i]->ether_type = from[i]->ether_type;
        to[i]->vlan_tag = from[i]->vlan_tag;
    }
    rule->eth = true;
    return true;
}

static bool read_ports(const struct ibv_flow_spec_tcp_udp *spec, struct rule *rule)
{
    rule->val.dst_port = spec->val.dst_port;
    rule->val.src_port = spec->val.src_port;
    rule->mask.dst_port = spec->mask.dst_port;
    rule->mask.src_port = spec->mask.src_port;
    return !(rule->udp && rule->tcp);
}

static bool read_ipv4(const struct ibv_flow_spec_ipv4 *spec, struct rule *rule)
{
    rule->ipv4 = true;
    rule->val.src_ip = spec->val.src_ip;
    rule->val.dst_ip = spec->val.dst_ip;
    rule->mask.src_ip = spec->mask.src_ip;
    rule->mask.dst_ip = spec->mask.dst_ip;
    return true;
}

static bool read_ipv4_ext(const struct ibv_flow_spec_ipv4_ext *spec, struct rule *rule)
{
    const struct ibv_flow_ipv4_ext_filter *from[] = {&spec->val, &spec->mask};
    struct headers *to[] = {&rule->val, &rule->mask};
    for (int i = 0; i < 2; i++) {
        to[i]->src_ip = from[i]->src_ip;
        to[i]->dst_ip = from[i]->dst_ip;
        to[i]->proto = from[i]->proto;
        to[i]->tos = from[i]->tos;
        to[i]->ttl = from[i]->ttl;
    }
    rule->ipv4 = true;
    return !spec->mask.flags;
}

static int read_spec(const void *at, enum ibv_flow_spec_type type, size_t size, struct rule *rule)
{
    switch (type) {
    case IBV_FLOW_SPEC_ETH: return size == sizeof(struct ibv_flow_spec_eth) && read_eth(at, rule) ? 0 : EINVAL;
    case IBV_FLOW_SPEC_IPV4: return size == sizeof(struct ibv_flow_spec_ipv4) && read_ipv4(at, rule) ? 0 : EINVAL;
    case IBV_FLOW_SPEC_IPV4_EXT: return size == sizeof(struct ibv_flow_spec_ipv4_ext) && read_ipv4_ext(at, rule) ? 0 : EOPNOTSUPP;
    case IBV_FLOW_SPEC_UDP:
    case IBV_FLOW_SPEC_TCP:
        if (type == IBV_FLOW_SPEC_UDP) rule->udp = true;
        else rule->tcp = true;
        return size == sizeof(struct ibv_flow_spec_tcp_udp) && read_ports(at, rule) ? 0 : EINVAL;
    case IBV_FLOW_SPEC_ACTION_TAG:
        if (size != sizeof(struct ibv_flow_spec_action_tag)) return EINVAL;
        memcpy(&rule->tag, (const uint8_t *)at + offsetof(struct ibv_flow_spec_action_tag, tag_id), sizeof rule->tag);
        return rule->tag < 1u << 24 ? 0 : EINVAL;
    case IBV_FLOW_SPEC_ACTION_DROP: rule->drop = true; return size == sizeof(struct ibv_flow_spec_action_drop) ? 0 : EINVAL;
    default: return EOPNOTSUPP;
    }
}

static int read_specs(const struct ibv_flow_attr *attr, struct rule *rule, enum ibv_flow_spec_type *first)
{
    const uint8_t *at = (const uint8_t *)(attr + 1), *end = (const uint8_t *)attr + attr->size;
    if (attr->size < sizeof *attr) return EINVAL;
    for (unsigned i = 0; i < attr->num_of_specs; i++) {
        struct {
            enum ibv_flow_spec_type type;
            uint16_t size;
        } head;
        if ((size_t)(end - at) < sizeof head) return EINVAL;
        memcpy(&head, at, sizeof head);
        if (head.size < sizeof head || head.size > end - at) return EINVAL;
        if (!i) *first = head.type;
        int error = read_spec(at, head.type, head.size, rule);
        if (error) return error;
        at += head.size;
    }
    /* A rule for IPv4 is none for another type of frame. */
    return rule->ipv4 && (rule->val.ether_type ^ htons(0x0800)) & rule->mask.ether_type ? EINVAL : 0;
}

/* By the first spec, as mlx5_ib does. */
static bool multicast_only(const struct rule *rule, enum ibv_flow_spec_type first)
{
    if (first == IBV_FLOW_SPEC_IPV4) return (ntohl(rule->val.dst_ip) >> 28) == 14;
    return first == IBV_FLOW_SPEC_ETH && rule->mask.dst_mac[0] & 1 && rule->val.dst_mac[0] & 1;
}

static int read_rule(struct qp *qp, const struct ibv_flow_attr *attr, struct rule *rule)
{
    enum ibv_flow_spec_type first = (enum ibv_flow_spec_type)0;
    if (attr->comp_mask || attr->port != PORT || attr->flags & ~(uint32_t)IBV_FLOW_ATTR_FLAGS_DONT_TRAP) return EINVAL;
    if (attr->priority > LAST_PRIORITY) return ENOMEM;
    if (attr->type == IBV_FLOW_ATTR_SNIFFER) return EOPNOTSUPP;
    if (attr->type > IBV_FLOW_ATTR_SNIFFER) return EINVAL;
    int error = read_specs(attr, rule, &first);
    if (error) return error;
    rule->dont_trap = attr->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
    if (attr->type != IBV_FLOW_ATTR_NORMAL && (attr->num_of_specs || rule->dont_trap)) return EINVAL;
    rule->qp = qp;
    rule->type = attr->type;
    rule->asked_priority = attr->priority;
    rule->priority = attr->type != IBV_FLOW_ATTR_NORMAL ? LEFTOVER_PRIORITY
                     : multicast_only(rule, first) && !rule->dont_trap ? MULTICAST_PRIORITY
                                                                       : attr->priority;
    return 0;
}

/* --- matching --- */

static bool mac_matches(const uint8_t *mac, const uint8_t *val, const uint8_t *mask)
{
    for (int i = 0; i < 6; i++)
        if ((mac[i] ^ val[i]) & mask[i]) return false;
    return true;
}

bool matches(const struct rule *rule, const struct headers *h, bool any_mac)
{
    const struct headers *val = &rule->val, *mask = &rule->mask;
    if (rule->type == IBV_FLOW_ATTR_ALL_DEFAULT) return true;
    if (rule->type == IBV_FLOW_ATTR_MC_DEFAULT) return h->dst_mac[0] & 1;
    if (rule->eth) {
        if (!any_mac && !mac_matches(h->dst_mac, val->dst_mac, mask->dst_mac)) return false;
        if (!any_mac && !mac_matches(h->src_mac, val->src_mac, mask->src_mac)) return false;
        if ((h->ether_type ^ val->ether_type) & mask->ether_type) return false;
        if (mask->vlan_tag && (!h->has_vlan || (h->vlan_tag ^ val->vlan_tag) & mask->vlan_tag)) return false;
    }
    if (rule->ipv4) {
        if (!h->is_ipv4 || (h->src_ip ^ val->src_ip) & mask->src_ip || (h->dst_ip ^ val->dst_ip) & mask->dst_ip) return false;
        if ((h->proto ^ val->proto) & mask->proto || (h->tos ^ val->tos) & mask->tos) return false;
        if ((h->ttl ^ val->ttl) & mask->ttl) return false;
    }
    if ((rule->udp && !h->is_udp) || (rule->tcp && !h->is_tcp)) return false;
    if (rule->udp || rule->tcp)
        return !((h->src_port ^ val->src_port) & mask->src_port) && !((h->dst_port ^ val->dst_port) & mask->dst_port);
    return true;
}

bool same_match(const struct rule *a, const struct rule *b)
{
    return a->priority == b->priority && a->type == b->type && a->eth == b->eth && a->ipv4 == b->ipv4 && a->udp == b->udp
           && a->tcp == b->tcp && a->drop == b->drop && a->dont_trap == b->dont_trap && !memcmp(&a->val, &b->val, sizeof a->val)
           && !memcmp(&a->mask, &b->mask, sizeof a->mask);
}

/* --- the calls --- */

static struct ibv_flow *create_flow(struct ibv_qp *ibv, struct ibv_flow_attr *attr)
{
    struct context *context = context_of(ibv->context);
    struct qp *qp = container_of(ibv, struct qp, ibv);
    pthread_mutex_lock(&lock);
    struct card *card = context->card;
    int error = refused(card, context, CALL_CREATE_FLOW);
    if (!error && card->is.flags & STAND_IN_NO_NET_RAW) error = EPERM;
    if (!error && card->counts.flows >= card->is.max_flows) error = ENOMEM;
    struct rule *rule = error ? NULL : calloc(1, sizeof *rule);
    if (!error) error = rule ? read_rule(qp, attr, rule) : ENOMEM;
    if (!error) {
        struct rule **at = &card->rules;
        while (*at && (*at)->priority <= rule->priority) at = &(*at)->next;
        rule->next = *at;
        *at = rule;
        rule->ibv.context = ibv->context;
        rule->ibv.handle = (uint32_t)++card->next_handle;
        qp->users++;
        card->counts.flows++;
    }
    pthread_mutex_unlock(&lock);
    if (!error) return &rule->ibv;
    free(rule);
    errno = error;
    return NULL;
}

static int destroy_flow(struct ibv_flow *ibv)
{
    struct rule *rule = container_of(ibv, struct rule, ibv);
    struct context *context = context_of(ibv->context);
    pthread_mutex_lock(&lock);
    struct card *card = context->card;
    int error = rule->gone ? EIO : refused(card, NULL, CALL_DESTROY_FLOW);
    struct rule **at = &card->rules;
    while (*at && *at != rule) at = &(*at)->next;
    if (!error) {
        if (*at) *at = rule->next;
        rule->qp->users--;
        card->counts.flows--;
        error = after_pull(context);
        if (error) bury(rule, &rule->gone);
        else free(rule);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

void remove_rules_of(struct card *card, const struct context *context)
{
    for (struct rule **at = &card->rules; *at;)
        if ((*at)->ibv.context == &context->verbs.context) *at = (*at)->next;
        else at = &(*at)->next;
}

void add_rule_calls(struct verbs_context *verbs)
{
    verbs->ibv_create_flow = create_flow;
    verbs->ibv_destroy_flow = destroy_flow;
}

/* --- as text --- */

struct text {
    char *at;
    size_t room, length;
};

__attribute__((format(printf, 2, 3))) static void say(struct text *text, const char *format, ...)
{
    va_list list;
    bool fits = text->length < text->room;
    va_start(list, format);
    int n = vsnprintf(fits ? text->at + text->length : NULL, fits ? text->room - text->length : 0, format, list);
    va_end(list);
    if (n > 0) text->length += (size_t)n;
}

static void say_mac(struct text *text, const char *name, const uint8_t *mac, const uint8_t *mask)
{
    static const uint8_t none[6], all[6] = {255, 255, 255, 255, 255, 255};
    if (!memcmp(mask, none, 6)) return;
    say(text, " %s %02x:%02x:%02x:%02x:%02x:%02x", name, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
    if (memcmp(mask, all, 6)) say(text, "/%02x:%02x:%02x:%02x:%02x:%02x", mask[0], mask[1], mask[2], mask[3], mask[4], mask[5]);
}

static void say_ip(struct text *text, const char *name, uint32_t ip, uint32_t mask)
{
    uint8_t b[4], m[4];
    memcpy(b, &ip, 4);
    memcpy(m, &mask, 4);
    if (!mask) return;
    say(text, " %s %u.%u.%u.%u", name, b[0], b[1], b[2], b[3]);
    if (mask != UINT32_MAX) say(text, "/%u.%u.%u.%u", m[0], m[1], m[2], m[3]);
}

static void say_number(struct text *text, const char *name, uint16_t value, uint16_t mask, bool hex)
{
    if (!mask) return;
    say(text, hex ? " %s %04x" : " %s %u", name, ntohs(value));
    if (mask != UINT16_MAX) say(text, "/%04x", ntohs(mask));
}

static void say_rule(struct text *text, const struct rule *r)
{
    say(text, "%u QP %u", r->priority, r->qp->queue.number);
    if (r->type == IBV_FLOW_ATTR_ALL_DEFAULT) say(text, " all");
    if (r->type == IBV_FLOW_ATTR_MC_DEFAULT) say(text, " multicast");
    if (r->eth) {
        say(text, " eth");
        say_mac(text, "src", r->val.src_mac, r->mask.src_mac);
        say_mac(text, "dst", r->val.dst_mac, r->mask.dst_mac);
        say_number(text, "type", r->val.ether_type, r->mask.ether_type, true);
        say_number(text, "vlan", r->val.vlan_tag, r->mask.vlan_tag, false);
    }
    if (r->ipv4) {
        say(text, " ipv4");
        say_ip(text, "src", r->val.src_ip, r->mask.src_ip);
        say_ip(text, "dst", r->val.dst_ip, r->mask.dst_ip);
        if (r->mask.proto) say(text, " proto %u", r->val.proto);
    }
    if (r->udp || r->tcp) {
        say(text, r->udp ? " udp" : " tcp");
        say_number(text, "src", r->val.src_port, r->mask.src_port, false);
        say_number(text, "dst", r->val.dst_port, r->mask.dst_port, false);
    }
    if (r->tag) say(text, " tag %u", r->tag);
    if (r->drop) say(text, " drop");
    if (r->dont_trap) say(text, " dont-trap");
    say(text, "\n");
}

int64_t stand_in_rules(const char *name, char *room, size_t length)
{
    struct text text = {room, room ? length : 0, 0};
    pthread_mutex_lock(&lock);
    struct card *card = card_named(name);
    if (text.room) *room = 0;
    for (struct rule *r = card ? card->rules : NULL; r; r = r->next) say_rule(&text, r);
    pthread_mutex_unlock(&lock);
    return card ? (int64_t)text.length : -1;
}
