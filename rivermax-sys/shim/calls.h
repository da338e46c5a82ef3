/* Included by shim.h to declare and by shim.c to define. No guard: it is a list. */
SHIM(const char *, rmx_get_version_string, (void), ())
SHIM_VOID(rmx_mark_cpu_for_affinity, (void *mask, size_t cpu), (mask, cpu))
SHIM(int, rmx_set_cpu_affinity, (const void *mask, size_t count), (mask, count))
SHIM(int, rmx_enable_system_signal_handling, (void), ())
SHIM(int, rmx_init, (void), ())
SHIM(int, rmx_cleanup, (void), ())

SHIM(int, rmx_retrieve_device_iface_ipv4, (rmx_device_iface * iface, const void *ip), (iface, ip))
SHIM_VOID(rmx_init_ptp_clock, (gdmedia_ptp_clock * clock), (clock))
SHIM_VOID(rmx_set_ptp_clock_device, (gdmedia_ptp_clock * clock, const rmx_device_iface *iface), (clock, iface))
SHIM(int, rmx_use_ptp_clock, (gdmedia_ptp_clock * clock), (clock))
SHIM(int, rmx_check_clock_steady, (void), ())
SHIM(int, rmx_get_time, (int64_t type, uint64_t *time), (type, time))

SHIM_VOID(rmx_init_mem_registry, (gdmedia_mem_registry * registry, const rmx_device_iface *iface), (registry, iface))
SHIM(int, rmx_register_memory, (rmx_mem_region * region, gdmedia_mem_registry *registry), (region, registry))
SHIM(int, rmx_deregister_memory, (rmx_mem_region * region, const rmx_device_iface *iface), (region, iface))

SHIM_VOID(rmx_input_init_stream, (rmx_input_stream_params * params, int64_t type), (params, type))
SHIM_VOID(rmx_input_set_stream_nic_address, (rmx_input_stream_params * params, const void *address), (params, address))
SHIM_VOID(rmx_input_enable_stream_option, (rmx_input_stream_params * params, int64_t option), (params, option))
SHIM_VOID(rmx_input_set_mem_capacity_in_packets, (rmx_input_stream_params * params, size_t packets), (params, packets))
SHIM_VOID(rmx_input_set_mem_sub_block_count, (rmx_input_stream_params * params, size_t count), (params, count))
SHIM_VOID(rmx_input_set_entry_size_range, (rmx_input_stream_params * params, size_t sub_block, size_t min, size_t max),
          (params, sub_block, min, max))
SHIM_VOID(rmx_input_set_entry_uniform_size, (rmx_input_stream_params * params, size_t sub_block, size_t size),
          (params, sub_block, size))
SHIM_VOID(rmx_input_set_timestamp_format, (rmx_input_stream_params * params, int64_t format), (params, format))
SHIM(int, rmx_input_determine_mem_layout, (rmx_input_stream_params * params), (params))
SHIM(size_t, rmx_input_get_mem_capacity_in_packets, (const rmx_input_stream_params *params), (params))
SHIM(size_t, rmx_input_get_stride_size, (const rmx_input_stream_params *params, size_t sub_block), (params, sub_block))
SHIM(rmx_mem_region *, rmx_input_get_mem_block_buffer, (rmx_input_stream_params * params, size_t sub_block),
     (params, sub_block))

SHIM(int, rmx_input_create_stream, (rmx_input_stream_params * params, rmx_stream_id *id), (params, id))
SHIM(int, rmx_input_destroy_stream, (const rmx_stream_id *id), (*id))
SHIM(int, rmx_input_set_completion_moderation, (const rmx_stream_id *id, size_t min, size_t max, uint32_t timeout_us),
     (*id, min, max, timeout_us))

SHIM_VOID(rmx_input_init_flow, (gdmedia_flow * flow), (flow))
SHIM_VOID(rmx_input_set_flow_local_addr, (gdmedia_flow * flow, const void *address), (flow, address))
SHIM_VOID(rmx_input_set_flow_remote_addr, (gdmedia_flow * flow, const void *address), (flow, address))
SHIM_VOID(rmx_input_set_flow_tag, (gdmedia_flow * flow, uint32_t tag), (flow, tag))
SHIM(int, rmx_input_attach_flow, (const rmx_stream_id *id, gdmedia_flow *flow), (*id, flow))
SHIM(int, rmx_input_detach_flow, (const rmx_stream_id *id, gdmedia_flow *flow), (*id, flow))

SHIM_VOID(rmx_input_init_chunk_handle, (gdmedia_chunk_handle * chunk, const rmx_stream_id *id), (chunk, *id))
SHIM(int, rmx_input_get_next_chunk, (gdmedia_chunk_handle * chunk), (chunk))
SHIM(const rmx_input_completion *, rmx_input_get_chunk_completion, (const gdmedia_chunk_handle *chunk), (chunk))
SHIM(size_t, rmx_input_get_completion_chunk_size, (const rmx_input_completion *completion), (completion))
SHIM(const void *, rmx_input_get_completion_ptr, (const rmx_input_completion *completion, size_t sub_block),
     (completion, sub_block))
SHIM(int, rmx_input_get_completion_flag, (const rmx_input_completion *completion, int64_t flag), (completion, flag) != 0)
SHIM(uint64_t, rmx_input_get_completion_timestamp_first, (const rmx_input_completion *completion), (completion))
SHIM(uint64_t, rmx_input_get_completion_timestamp_last, (const rmx_input_completion *completion), (completion))
SHIM(const rmx_input_packet_info *, rmx_input_get_packet_info, (const gdmedia_chunk_handle *chunk, size_t packet),
     (chunk, packet))
SHIM(size_t, rmx_input_get_packet_size, (const rmx_input_packet_info *packet, size_t sub_block), (packet, sub_block))
SHIM(uint32_t, rmx_input_get_packet_flow_tag, (const rmx_input_packet_info *packet), (packet))
SHIM(uint64_t, rmx_input_get_packet_timestamp, (const rmx_input_packet_info *packet), (packet))

SHIM_VOID(rmx_init_event_channel, (gdmedia_event_channel * channel, const rmx_stream_id *id), (channel, *id))
SHIM_VOID(rmx_set_event_channel_handle, (gdmedia_event_channel * channel, int *fd), (channel, fd))
SHIM(int, rmx_establish_event_channel, (gdmedia_event_channel * channel), (channel))
SHIM_VOID(rmx_init_notification, (gdmedia_notification * notification, const rmx_stream_id *id), (notification, *id))
SHIM(int, rmx_request_notification, (gdmedia_notification * notification), (notification))
