"""Reads a Perfetto trace from standard input with the published schema and prints a line per packet."""

import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

trace = schema.Trace()
trace.ParseFromString(sys.stdin.buffer.read())
names, arguments, tracks = {}, {}, {}
kinds = {1: "begin", 2: "end", 3: "instant", 4: "counter"}
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id == 1
    for entry in packet.interned_data.event_names:
        names[entry.iid] = entry.name
    for entry in packet.interned_data.debug_annotation_names:
        arguments[entry.iid] = entry.name
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        tracks[track.uuid] = track.process.process_name or track.name
        if track.HasField("process"):
            print("process", track.process.process_name, "pid", track.process.pid)
        else:
            assert track.parent_uuid in tracks
            print("track", track.name, "rank", track.sibling_order_rank)
    if packet.HasField("track_event"):
        event = packet.track_event
        args = {}
        for annotation in event.debug_annotations:
            args[arguments[annotation.name_iid]] = getattr(annotation, annotation.WhichOneof("value"))
        flows = ["flow %x" % flow for flow in event.flow_ids] + ["ends %x" % flow for flow in event.terminating_flow_ids]
        name = event.name or (names[event.name_iid] if event.name_iid else "")
        print(packet.timestamp, kinds[event.type], tracks[event.track_uuid], name, args, *flows)
