//! Wakers of slots.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;

use arrow::datatypes::Schema;

use super::*;

#[derive(Default)]
struct Calls(AtomicU64);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reader of slot 0 may not be called for long, say because its watermark is far ahead. The
/// readers of other slots sleep. A notice comes from a worker that decodes a batch.
#[test]
fn a_notice_wakes_the_readers_of_all_slots() {
    let slots = Slots::new(Layout {
        place: "channel bids".into(),
        slots: 3,
        producers_max: 3,
        is_coordinator: true,
        producers: 3,
        bounded: false,
        on_loss: OnLoss::Notice,
        slot_bytes_max: 1000,
        schema: Arc::new(Schema::empty()),
    });
    let calls: [Arc<Calls>; 3] = Default::default();
    let count = || calls.each_ref().map(|one| one.0.swap(0, Ordering::Relaxed));
    let wakers = calls.clone().map(Waker::from);
    let mut sender = slots.join("p").unwrap();
    sender.begin(false).unwrap();
    while slots.notice().is_some() {}
    assert!(matches!(slots.next(0, &wakers[0]).unwrap(), Next::Chunk(_)), "joining");
    for number in 0..3 {
        sender.send(None, Some(number)).unwrap();
        assert!(matches!(slots.next(0, &wakers[0]).unwrap(), Next::Chunk(_)));
        for slot in [1, 2] {
            assert!(matches!(slots.next(slot, &wakers[slot]).unwrap(), Next::Nothing));
        }
        count();
        slots.notices.push("it is damaged".into());
        assert_eq!(count(), [0, 1, 1], "notice {number}");
        assert!(slots.notice().is_some());
    }
    // Nobody has looked since.
    slots.notices.push("more".into());
    assert_eq!(count(), [0, 0, 0]);
}
