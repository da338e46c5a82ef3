/* Parameters of a stream, and the layout of its memory. */
#include "internal.h"

void rmx_input_init_stream(rmx_input_stream_params *params, rmx_input_stream_type type)
{
    memset(params, 0, sizeof *params);
    params->type = type;
    params->sub_blocks = 1;
    params->timestamp_format = RMX_INPUT_TIMESTAMP_RAW_NANO;
    for (size_t i = 0; i < BLOCKS; i++) params->block[i].region.mkey = RMX_MKEY_INVALID;
}

void rmx_input_set_stream_nic_address(rmx_input_stream_params *params, const struct sockaddr *address)
{
    memcpy(&params->nic, address, sizeof params->nic);
}

void rmx_input_enable_stream_option(rmx_input_stream_params *params, rmx_input_option option)
{
    params->options |= UINT32_C(1) << option;
}

void rmx_input_set_entry_size_range(rmx_input_stream_params *params, size_t sub_block, size_t min, size_t max)
{
    if (sub_block >= BLOCKS) return;
    params->block[sub_block].min = min;
    params->block[sub_block].max = max;
}

void rmx_input_set_timestamp_format(rmx_input_stream_params *params, rmx_input_timestamp_format format)
{
    params->timestamp_format = format;
}

static bool has(const rmx_input_stream_params *params, rmx_input_option option)
{
    return params->options >> option & 1;
}

static rmx_status check(const rmx_input_stream_params *params)
{
    if (params->type != RMX_INPUT_APP_PROTOCOL_PACKET) return RMX_NOT_IMPLEMENTED;
    if (params->sub_blocks < 1 || params->sub_blocks > BLOCKS || !params->capacity) return RMX_INVALID_PARAM_1;
    if (params->timestamp_format != RMX_INPUT_TIMESTAMP_RAW_NANO && params->timestamp_format != RMX_INPUT_TIMESTAMP_SYNCED)
        return RMX_INVALID_PARAM_1;
    if (has(params, RMX_INPUT_STREAM_RTP_SEQN_PLACEMENT_ORDER) && has(params, RMX_INPUT_STREAM_RTP_EXT_SEQN_PLACEMENT_ORDER))
        return RMX_INVALID_PARAM_1;
    for (size_t i = 0; i < params->sub_blocks; i++)
        if (!params->block[i].max || params->block[i].max > 65536 || params->block[i].min > params->block[i].max)
            return RMX_INVALID_PARAM_1;
    /* A split of which the place differs from packet to packet is not for this NIC. */
    if (params->sub_blocks == 2 && params->block[0].min != params->block[0].max) return RMX_NOT_IMPLEMENTED;
    return RMX_OK;
}

rmx_status rmx_input_determine_mem_layout(rmx_input_stream_params *params)
{
    if (!params) return RMX_INVALID_PARAM_1;
    if (!initialised()) return RMX_NOT_INITIALIZED;
    uint32_t ip = params->nic.sin_addr.s_addr;
    rmx_status status = injected(ip, "rmx_input_determine_mem_layout");
    if (!status) status = check(params);
    if (status) return status;
    unsigned index;
    if (!find_device(ip, &index)) return RMX_NO_SUCH_DEVICE;

    rmx_stand_in_device switches = device_switches(ip);
    size_t multiple = switches.capacity_multiple ? switches.capacity_multiple : 1;
    size_t capacity = (params->capacity + multiple - 1) / multiple * multiple;
    if (capacity > SIZE_MAX >> 24) return RMX_INVALID_PARAM_1;
    params->capacity = capacity;
    for (size_t i = 0; i < params->sub_blocks; i++) {
        bool none = switches.no_split && params->sub_blocks == 2 && i == 0;
        params->block[i].stride = none ? 0 : params->block[i].max + switches.extra_stride;
        params->block[i].region.addr = NULL;
        params->block[i].region.mkey = RMX_MKEY_INVALID;
        params->block[i].region.length = capacity * params->block[i].stride;
    }
    params->determined_at = params;
    return RMX_OK;
}
