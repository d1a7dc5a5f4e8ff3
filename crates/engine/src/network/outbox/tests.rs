//! Tests of an outbox: what leaves it, and what waits in it.

use std::sync::{Mutex, PoisonError};

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;
use millstream_state::{Idle, ValueKind};

use super::super::combine::tests::segment;
use super::*;
use crate::expr::Expr;
use crate::network::wire::CREDITED;
use crate::plan::Key;
use millstream_operators::columns::aggregates::Aggregates;
use millstream_operators::columns::keys::KeyCodec;

/// Takes messages as long as there is credit, and keeps their heads and lengths in words.
#[derive(Default)]
struct Sent {
    heads: Vec<(Head, usize)>,
    credit: Option<usize>,
}

struct Heads {
    sent: Arc<Mutex<Sent>>,
    slot: Vec<u64>,
}

const SLOT_WORDS: usize = 512;

impl Heads {
    fn new(sent: &Arc<Mutex<Sent>>) -> Box<Heads> {
        Box::new(Heads { sent: sent.clone(), slot: vec![0; SLOT_WORDS] })
    }

    fn take(&mut self, head: &Head, words: usize) -> bool {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.credit == Some(0) {
            return false;
        }
        sent.credit = sent.credit.map(|credit| credit - 1);
        sent.heads.push((*head, words));
        true
    }
}

fn sealed(worker: usize, segments: Vec<(u64, Segment)>, watermark: i64) -> Sealed {
    let of_slice = |(slice, segment)| (SliceId::from_word(slice), segment);
    let segments = segments.into_iter().map(of_slice).collect();
    let parcel = Parcel { segments, passed: Vec::new() };
    Sealed { worker, parcel, held: None, watermark, cut: 0 }
}

impl Outlet for Heads {
    fn try_send(&mut self, head: &Head, body: &[u8]) -> Result<bool> {
        Ok(self.take(head, body.len() / 8))
    }
    fn copied_bytes(&self) -> u64 {
        0
    }
    fn body_bytes(&self) -> usize {
        8 * SLOT_WORDS
    }
    fn slot(&mut self) -> Result<Option<&mut [u64]>> {
        let none = self.sent.lock().unwrap().credit == Some(0);
        Ok((!none).then_some(&mut self.slot[..]))
    }
    fn send(&mut self, head: &Head, words: usize) -> Result<bool> {
        assert!((1..=SLOT_WORDS).contains(&words));
        Ok(self.take(head, words))
    }
    fn park(&mut self) -> Result<bool> {
        Ok(true)
    }
    fn try_finish(&mut self) -> Result<bool> {
        Ok(true)
    }
}

/// Rows of a key of one word and a count.
fn counts() -> Arc<RowLayout> {
    Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]))
}

/// Process 1's outbox for a leader of process 0.
fn outbox(
    sent: &Arc<Mutex<Sent>>,
    layout: &Arc<RowLayout>,
    workers: usize,
    fragment_bytes: usize,
) -> Outbox {
    let place = Place { process: 1, processes: 2 };
    let heap = Heap::map(4 << 20, Idle::GivenBack).unwrap();
    let shipping = Shipping {
        layout: layout.clone(),
        format: None,
        fragment_bytes,
        passed_bytes: fragment_bytes.div_ceil(4),
    };
    Outbox::new(Heads::new(sent), place, workers, &heap, &shipping)
}

#[test]
fn two_deltas_with_rows_wait_for_the_leader_at_most() {
    let sent = Arc::new(Mutex::new(Sent::default()));
    let layout = counts();
    let mut outbox = outbox(&sent, &layout, 1, 1 << 20);
    // Whether each delta that has been sent has rows.
    let deltas = || -> Vec<bool> {
        let sent = sent.lock().unwrap();
        let deltas = sent.heads.iter().filter(|(head, _)| head.kind == Kind::Delta);
        deltas.map(|(head, _)| head.has(CREDITED)).collect()
    };
    for watermark in 1..=3 {
        assert!(outbox.stall().is_none());
        outbox.put(sealed(0, vec![(10, segment(&layout, 0..5))], watermark));
        outbox.pump().unwrap();
    }
    assert_eq!(deltas(), [true; 2]);
    assert!(outbox.stall() == Some(Obstacle::Credit) && !outbox.has_more() && !outbox.is_empty());
    assert_eq!(outbox.credit(MERGED | GO_ON).map(|segments| segments.len()), Some(1));
    assert!(outbox.has_more() && outbox.stall().is_none());
    outbox.pump().unwrap();
    assert_eq!(deltas(), [true; 3]);
    // One without rows does not wait.
    outbox.put(sealed(0, Vec::new(), 4));
    outbox.pump().unwrap();
    assert_eq!(deltas(), [true, true, true, false]);
    assert!(outbox.is_empty() && outbox.stall().is_none());
    assert!(outbox.credit(MERGED | GO_ON).is_some() && outbox.credit(MERGED | GO_ON).is_some());
    assert!(outbox.credit(MERGED | GO_ON).is_none(), "credit for what was never sent");
}

/// Passes so many keys on; returns how many there was room for.
fn pass(outbox: &mut Outbox, count: usize) -> usize {
    let key = Key {
        name: "k".into(),
        expr: Expr::Column(0),
        data_type: DataType::Int64,
        nullable: false,
    };
    let codec = KeyCodec::new(&[key]).expect("a key");
    let format = Format::new(&codec, &Aggregates::new(&[], false).expect("none"));
    let words: Vec<u64> = (0..count as u64).collect();
    let positions: Vec<u32> = (0..count as u32).collect();
    let rows = Outgoing {
        slice: SliceId::from_word(10),
        picked: &positions,
        words: &words,
        rows: &positions,
        vars: &[],
        arguments: &[],
    };
    outbox.pass(&format, &rows, 1, &mut Vec::new()).expect("a slot")
}

/// Rows that are passed through go in full slots; the delta that they belong to ends behind them,
/// when it is long enough or there is something else to tell, and waits for the leader like any
/// other. It makes no difference how many workers there are.
#[test]
fn rows_passed_through_belong_to_the_next_delta() {
    let sent = Arc::new(Mutex::new(Sent::default()));
    let layout = counts();
    let mut of_two = outbox(&sent, &layout, 2, 1 << 20);
    assert_eq!(pass(&mut of_two, 10), 10);
    // A row of state has two words, and a quarter of a fragment is passed through at a time.
    let fragment_bytes = 4 * 1000 * 16;
    let mut outbox = outbox(&sent, &layout, 1, fragment_bytes);
    let heads = || std::mem::take(&mut sent.lock().unwrap().heads);
    let kinds = |heads: &[(Head, usize)]| -> Vec<(Kind, bool)> {
        heads.iter().map(|(head, _)| (head.kind, head.has(CREDITED))).collect()
    };
    assert_eq!(pass(&mut outbox, 900), 900);
    // Two words say what a section is.
    assert_eq!(heads().iter().map(|(_, words)| *words).collect::<Vec<_>>(), [SLOT_WORDS]);
    assert!(!outbox.has_more());
    // An epoch ends: what is open goes first.
    outbox.put(sealed(0, vec![(10, segment(&layout, 0..5))], 1));
    outbox.pump().unwrap();
    let delta = heads();
    assert_eq!(kinds(&delta), [(Kind::Passed, false), (Kind::Delta, true)]);
    // A small segment is packed: two words of a head, and five rows.
    assert_eq!(delta[1].1, 2 + 5 * 2);
    assert_eq!(delta[0].1, 2 + 900 - (SLOT_WORDS - 2));
    // So many that the delta ends by itself.
    assert_eq!(pass(&mut outbox, 1000), 1000);
    assert!(outbox.has_more());
    assert_eq!(pass(&mut outbox, 1), 0, "before that has been told");
    outbox.pump().unwrap();
    assert_eq!(kinds(&heads())[1..], [(Kind::Passed, false), (Kind::Delta, true)]);
    // Two deltas are on their way.
    assert_eq!(pass(&mut outbox, 1), 0);
    assert!(outbox.stall().is_none() && !outbox.has_more());
    assert_eq!(outbox.credit(MERGED | GO_ON).map(|segments| segments.len()), Some(1));
    assert_eq!(pass(&mut outbox, 10), 10);
    // Without credit for slots, what is open waits, and everything behind it.
    sent.lock().unwrap().credit = Some(0);
    assert_eq!(pass(&mut outbox, 10), 0);
    outbox.put(sealed(0, Vec::new(), 2));
    assert!(!outbox.pump().unwrap() && outbox.has_more() && !outbox.is_empty());
    sent.lock().unwrap().credit = Some(1);
    outbox.pump().unwrap();
    assert_eq!(kinds(&heads()), [(Kind::Passed, false)]);
    assert_eq!(pass(&mut outbox, 10), 0, "a delta is being ended");
    sent.lock().unwrap().credit = None;
    outbox.pump().unwrap();
    assert_eq!(kinds(&heads()), [(Kind::Delta, true)]);
    assert!(outbox.is_empty());
    let counters = outbox.counters();
    assert_eq!((counters.passed, counters.rows, counters.deltas), (1910, 1915, 3));
}

/// Rows for which there is no slot are kept; no more input is taken until there is one.
#[test]
fn who_lacks_a_slot_waits_for_it() {
    let sent = Arc::new(Mutex::new(Sent::default()));
    let layout = counts();
    let mut outbox = outbox(&sent, &layout, 1, 1 << 20);
    let credit = |credit| sent.lock().unwrap().credit = credit;
    let in_slot = SLOT_WORDS - 2;
    credit(Some(1));
    assert_eq!(pass(&mut outbox, 3 * in_slot), in_slot);
    for _ in 0..2 {
        // Whoever sleeps meanwhile is woken by credit.
        assert!(outbox.stall() == Some(Obstacle::Slot) && outbox.has_more());
        assert!(!outbox.pump().unwrap());
    }
    credit(Some(2));
    outbox.pump().unwrap();
    assert!(outbox.stall().is_none() && !outbox.has_more());
    // To have filled the last slot there is, is not to lack one.
    assert_eq!(pass(&mut outbox, 2 * in_slot), 2 * in_slot);
    assert!(outbox.stall().is_none() && !outbox.has_more());
}

/// A row longer than a slot is kept, and those behind it.
#[test]
fn a_row_longer_than_a_slot_is_kept() {
    let key =
        |data_type| Key { name: "k".into(), expr: Expr::Column(0), data_type, nullable: false };
    let codec = KeyCodec::new(&[key(DataType::Utf8)]).expect("a key");
    let format = Format::new(&codec, &Aggregates::new(&[], false).expect("none"));
    let names = ["a", "b", &"long".repeat(SLOT_WORDS * 2), "c"];
    let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from_iter_values(names))];
    let positions = [0, 1, 2, 3];
    let mut words = vec![0; names.len() * codec.words()];
    codec.encode_words(&columns, &positions, &mut words);
    let rows = Outgoing {
        slice: SliceId::from_word(10),
        picked: &positions,
        words: &words,
        rows: &positions,
        vars: &format.vars_of(&columns, &[]),
        arguments: &[],
    };
    let sent = Arc::new(Mutex::new(Sent::default()));
    let layout = Arc::new(RowLayout::new(2, vec![1], &[(ValueKind::Count, false)]));
    let mut outbox = outbox(&sent, &layout, 1, 1 << 20);
    assert_eq!(outbox.pass(&format, &rows, 1, &mut Vec::new()).unwrap(), 2);
    assert!(!outbox.has_more() && outbox.stall().is_none());
}

/// While a delta is being sent, others wait together, but not without end.
#[test]
fn what_waits_behind_a_long_delta_is_bounded() {
    let sent = Arc::new(Mutex::new(Sent { credit: Some(0), ..Sent::default() }));
    let layout = counts();
    let bytes = segment(&layout, 0..5).bytes();
    let mut outbox = outbox(&sent, &layout, 1, 3 * bytes);
    for watermark in 1..=4 {
        assert!(outbox.stall().is_none(), "{watermark}");
        outbox.put(sealed(0, vec![(10, segment(&layout, 0..5))], watermark));
        outbox.pump().unwrap();
    }
    assert_eq!(outbox.stall(), Some(Obstacle::Credit));
    sent.lock().unwrap().credit = None;
    outbox.pump().unwrap();
    assert!(outbox.stall().is_none() && outbox.is_empty());
}

/// What is passed through goes at the end of an epoch, also where nothing else is to be told.
#[test]
fn an_epochs_end_sends_what_was_passed_through() {
    let sent = Arc::new(Mutex::new(Sent::default()));
    let mut outbox = outbox(&sent, &counts(), 2, 1 << 20);
    assert_eq!(pass(&mut outbox, 10), 10);
    assert!(!outbox.pump().unwrap() && !outbox.has_more());
    outbox.put(sealed(1, Vec::new(), BEGINNING));
    assert!(outbox.has_more() && outbox.pump().unwrap());
    let kinds: Vec<Kind> = sent.lock().unwrap().heads.iter().map(|(head, _)| head.kind).collect();
    assert_eq!(kinds, [Kind::Passed, Kind::Delta]);
    // The next one has nothing.
    outbox.put(sealed(1, Vec::new(), BEGINNING));
    assert!(!outbox.pump().unwrap() && !outbox.has_more());
}

/// A delta that has been merged is free memory; that another one may come is told apart. Where the
/// memory is needed more is sent anyway.
#[test]
fn merged_deltas_still_keep_others_back() {
    let sent = Arc::new(Mutex::new(Sent::default()));
    let layout = counts();
    let mut outbox = outbox(&sent, &layout, 1, 1 << 20);
    let put = |outbox: &mut Outbox, watermark| {
        outbox.put(sealed(0, vec![(10, segment(&layout, 0..5))], watermark));
        outbox.pump().unwrap()
    };
    assert!(put(&mut outbox, 1) && put(&mut outbox, 2) && !put(&mut outbox, 3));
    assert_eq!(outbox.credit(MERGED).map(|segments| segments.len()), Some(1));
    assert!(!outbox.pump().unwrap() && outbox.stall() == Some(Obstacle::Credit));
    assert_eq!(outbox.credit(GO_ON).map(|segments| segments.len()), Some(0));
    assert!(outbox.pump().unwrap() && outbox.stall().is_none());
    assert!(!put(&mut outbox, 4));
    outbox.hurry(false);
    assert!(!outbox.pump().unwrap());
    outbox.hurry(true);
    assert!(outbox.pump().unwrap() && outbox.is_empty());
    for _ in 0..3 {
        assert_eq!(outbox.credit(MERGED).map(|segments| segments.len()), Some(1));
    }
    assert!(outbox.credit(MERGED).is_none(), "all have been merged");
    assert!((0..3).all(|_| outbox.credit(GO_ON).is_some()));
    assert!(outbox.credit(GO_ON).is_none() && outbox.credit(0).is_none());
}

/// Small segments share messages, in order with large segments, whatever credit there is.
#[test]
fn small_segments_share_messages() {
    let layout = counts();
    let rows = [5_u64, 60, 200, 3, 60, 60, 60, 60, 60];
    for credits in [1, 9] {
        let sent = Arc::new(Mutex::new(Sent::default()));
        let mut outbox = outbox(&sent, &layout, 1, 1 << 20);
        let segments =
            rows.iter().enumerate().map(|(slice, rows)| (slice as u64, segment(&layout, 0..*rows)));
        sent.lock().unwrap().credit = Some(0);
        outbox.put(sealed(0, segments.collect(), 1));
        assert!(!outbox.pump().unwrap() && outbox.has_more());
        while outbox.has_more() {
            sent.lock().unwrap().credit = Some(credits);
            assert!(outbox.pump().unwrap());
        }
        let words = |kind| {
            let sent = sent.lock().unwrap();
            let of_kind = sent.heads.iter().filter(|(head, _)| head.kind == kind);
            of_kind.map(|(_, words)| *words).collect::<Vec<usize>>()
        };
        // 5 and 60 rows, before 200 by themselves; 3 and four times 60; and the last.
        assert_eq!(words(Kind::Packed), [12 + 122, 8 + 4 * 122]);
        assert_eq!(words(Kind::Rows), [400]);
        assert_eq!(words(Kind::Delta), [122]);
        let counters = outbox.counters();
        assert_eq!((counters.segments, counters.rows, counters.messages), (9, 568, 4));
        assert_eq!(outbox.credit(MERGED | GO_ON).map(|segments| segments.len()), Some(9));
    }
}
