//! Counters of an exchange, equal on any machine.

millstream_flow::counters! {
    /// Counts since the exchange was made, of all its links.
    pub struct Counters {
        /// Links made as a reader, and as a writer.
        links,
        /// Bytes of registered memory, now.
        registered_bytes,
        /// Streams that readers have opened.
        streams,
        /// Streams that writers have begun.
        streams_begun,
        /// Streams that are over: sent to their end, or given up for lack of a reader.
        streams_over,
        /// Flows of broadcasts made as a writer.
        broadcasts,
        /// Readers of these flows.
        broadcast_readers,
        /// Batches that were put into slots.
        batches_sent,
        /// Batches whose types have no layout here, and which went as Arrow IPC.
        serialised,
        /// Messages of the batches, with ends of streams. A message of a flow counts once here, and
        /// at each reader.
        messages_sent,
        /// Bytes of these messages, headers included. Each byte was copied once, into the slot.
        bytes_sent,
        /// Bytes that had to be rewritten before: offsets of slices, shifted bits, and values
        /// picked out of buffers that few views point to.
        rewritten_bytes,
        /// Batches that readers were given.
        batches_received,
        /// Messages that arrived.
        messages_received,
        /// Their bytes, headers included.
        bytes_received,
        /// Messages that batches read in place.
        in_place,
        /// Bytes that were copied out of slots, because they were few or slots were scarce.
        copied_bytes,
        /// Bytes of columns that were put together from several slots: a second copy.
        joined_bytes,
        /// Credit messages of readers, each for a stream.
        credits,
    }
}
