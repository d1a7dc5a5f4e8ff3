//! Asynchronous events: what happens to a device, a port, a queue pair or a queue apart from any
//! one request.

use std::ffi::CStr;

use crate::library::Library;
use crate::raw::*;

/// An event of a device, apart from single requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The affected object.
    pub source: EventSource,
    /// Its number in `enum ibv_event_type`.
    pub number: u32,
    /// The library's words for it.
    pub description: String,
}

/// Object affected by an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// The queue pair of that number.
    QueuePair(u32),
    /// The completion queue of that tag.
    CompletionQueue(usize),
    /// The port of that number.
    Port(u8),
    /// The whole device.
    Device,
}

impl AsyncEvent {
    /// A completion queue overflowed, or is broken.
    pub const COMPLETION_QUEUE_ERROR: u32 = 0;
    /// A queue pair failed in a way that no completion can report.
    pub const QUEUE_PAIR_FATAL: u32 = 1;
    /// A request that came from the peer was invalid.
    pub const QUEUE_PAIR_REQUEST_ERROR: u32 = 2;
    /// A request that came from the peer violated access rights.
    pub const QUEUE_PAIR_ACCESS_ERROR: u32 = 3;
    /// A port came up.
    pub const PORT_ACTIVE: u32 = 9;
    /// A port went down.
    pub const PORT_ERROR: u32 = 10;

    /// # Safety
    ///
    /// `raw` was filled by `ibv_get_async_event` and not acknowledged yet.
    pub(crate) unsafe fn from_raw(library: &Library, raw: &ibv_async_event) -> AsyncEvent {
        // SAFETY: as the caller promises.
        let source = unsafe { EventSource::from_raw(raw) };
        // SAFETY: the library returns a C string that lives forever, for any number.
        let description = unsafe { CStr::from_ptr((library.ibv_event_type_str)(raw.event_type)) };
        AsyncEvent {
            source,
            number: raw.event_type,
            description: description.to_string_lossy().into_owned(),
        }
    }
}

impl EventSource {
    /// # Safety
    ///
    /// The member that belongs to the event's type is set, and what it points to is alive.
    unsafe fn from_raw(raw: &ibv_async_event) -> EventSource {
        // SAFETY: as the caller promises.
        unsafe {
            match raw.event_type {
                1..=7 | 16 => EventSource::QueuePair((*raw.element.qp).qp_num),
                0 => EventSource::CompletionQueue((*raw.element.cq).cq_context as usize),
                9..=13 | 17 | 18 => EventSource::Port(raw.element.port_num as u8),
                _ => EventSource::Device,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_queue_pairs_name_them() {
        // Soft-RoCE sends none of these, so the library's part is played here.
        // SAFETY: all zero is a value of this plain structure of numbers and pointers.
        let mut pair = unsafe { std::mem::zeroed::<ibv_qp>() };
        pair.qp_num = 77;
        for event_type in [AsyncEvent::QUEUE_PAIR_FATAL, AsyncEvent::QUEUE_PAIR_ACCESS_ERROR] {
            let raw = ibv_async_event { element: ibv_async_element { qp: &mut pair }, event_type };
            // SAFETY: the member for these types is set to a queue pair that is alive.
            assert_eq!(unsafe { EventSource::from_raw(&raw) }, EventSource::QueuePair(77));
        }
    }
}
