//! A second example of an operator, which only tests use: the keys that rows of both inputs have in
//! a window, and how many rows of each.
//!
//! Rows are those of stages before, and their first column is the key. A row of state has a key and
//! two counts. It has no other parts than the contract asks for: nothing is passed through, nothing
//! is kept for later, and the defaults say the rest.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Int64Type};
use millstream_state::{
    BLOCK_ROWS, ChunkPool, Keys, Leaders, Load, NoVarKeys, RowLayout, Scratch, Table, ValueKind,
    hash_word,
};

use super::aside::AsideTables;
use super::identity::{Identity, TypeName};
use super::saved::{
    Cut, Restoring, SavePoint, SavedBatch, SavedPart, SetAside, StateRows, state_schema,
};
use super::{
    Batch, Delta, Firing, Leadership, Operator, Passing, Program, Room, Rows, SealSlice, Step,
    Updated,
};
use crate::budget::Usage;
use crate::columns::inputs::true_mask;
use crate::error::{Error, Result};
use crate::passed::{Onward, Parcel};
use crate::windowing::{SliceId, WindowId, Windowing};

/// Program shared by all workers.
#[derive(Debug)]
struct Tally {
    windowing: Windowing,
    layout: Arc<RowLayout>,
}

impl Program for Tally {
    fn name(&self) -> String {
        "tally".into()
    }

    fn windowing(&self) -> Windowing {
        self.windowing
    }

    fn layout(&self) -> &Arc<RowLayout> {
        &self.layout
    }

    fn start(self: Arc<Self>, leadership: Leadership, room: Room) -> Box<dyn Operator> {
        Box::new(Tallied {
            me: leadership.me,
            leaders: Leaders::even(leadership.leaders),
            slices: BTreeMap::new(),
            firing: None,
            pool: ChunkPool::new(self.layout.row_words(), room.pool_bytes, room.heap),
            scratch: Scratch::default(),
            program: self,
        })
    }

    fn small_slice_bytes(&self, leaders: usize) -> usize {
        leaders * Table::new(self.layout.clone()).growth_bytes(Load::rows(1))
    }

    fn explain(&self, text: &mut String, _: &dyn Fn(&DataType) -> String) {
        let _ = writeln!(text, "  row of {} bytes per key", self.layout.row_bytes());
    }

    fn saved_parts(&self) -> Vec<SavedPart> {
        let schema = state_schema(vec![], &self.layout);
        vec![SavedPart { name: "rows".into(), schema }]
    }

    fn identity(&self, _: TypeName<'_>) -> Identity {
        Identity {
            operator: "a tally".into(),
            keys: vec![],
            values: vec![],
            window: format!("{:?}", self.windowing),
            lateness_us: self.windowing.lateness_us(),
            layout: vec![],
        }
    }
}

/// A worker's state.
struct Tallied {
    program: Arc<Tally>,
    me: usize,
    leaders: Leaders,
    /// By slice, in each by leader: rows of the leader's keys.
    slices: BTreeMap<SliceId, Vec<Table>>,
    /// The firing window, its rows, and the next block.
    firing: Option<(WindowId, Table, usize)>,
    pool: ChunkPool,
    scratch: Scratch,
}

impl Tallied {
    fn tables(&self) -> impl Iterator<Item = &Table> {
        let firing = self.firing.iter().map(|(_, table, _)| table);
        self.slices.values().flatten().chain(firing)
    }

    /// The tables of a slice, and what updating them needs.
    fn open(&mut self, slice: SliceId) -> (&mut [Table], &mut ChunkPool, &mut Scratch) {
        let (layout, leaders) = (&self.program.layout, self.leaders.count());
        let new = || (0..leaders).map(|_| Table::new(layout.clone())).collect();
        let tables = self.slices.entry(slice).or_insert_with(new);
        (tables, &mut self.pool, &mut self.scratch)
    }
}

impl Operator for Tallied {
    fn update(&mut self, batch: &Batch<'_>, _: Option<&dyn Onward>) -> Result<Updated> {
        let Rows::Fired { rows, slice, .. } = batch.rows else {
            return Err(Error::Internal("a tally of records".into()));
        };
        let mask = batch.filter.map(|filter| true_mask(filter, rows)).transpose()?;
        let counts = |row: &usize| mask.as_ref().is_none_or(|mask| mask.value(*row));
        let keys = rows.column(0).as_primitive::<Int64Type>();
        let mut words = vec![Vec::new(); self.leaders.count()];
        for row in (0..rows.num_rows()).filter(counts) {
            let key = keys.value(row) as u64;
            words[self.leaders.of(hash_word(key))].push(key);
        }
        let taken = words.iter().map(Vec::len).sum::<usize>() as u64;
        let passing = Passing { rows: taken, ..Passing::default() };
        let mut updated = Updated { passing, latest: Some(slice), ..Updated::default() };
        let count = self.program.layout.values()[batch.input];
        for (leader, words) in words.iter().enumerate() {
            updated.others_rows += if leader == self.me { 0 } else { words.len() as u64 };
            let (tables, pool, scratch) = self.open(slice);
            for words in words.chunks(BLOCK_ROWS) {
                let hashes: Vec<u64> = words.iter().map(|word| hash_word(*word)).collect();
                let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
                tables[leader].update(&keys, pool, scratch).count(count, None);
            }
        }
        Ok(updated)
    }

    fn seal(&mut self, how: &dyn Fn(SliceId) -> SealSlice, _: bool) -> Vec<Parcel> {
        let mut parcels: Vec<_> = (0..self.leaders.count()).map(|_| Parcel::default()).collect();
        for (slice, tables) in &mut self.slices {
            for (leader, table) in tables.iter_mut().enumerate() {
                if how(*slice) == SealSlice::EndEpoch && leader != self.me && table.rows() > 0 {
                    parcels[leader].segments.push((*slice, table.seal()));
                }
            }
        }
        parcels
    }

    fn holds_for_others(&self) -> bool {
        let of_others = |(leader, table): (usize, &Table)| leader != self.me && table.rows() > 0;
        self.slices.values().any(|tables| tables.iter().enumerate().any(of_others))
    }

    fn merge(&mut self, slice: SliceId, delta: Delta<'_>) -> Result<()> {
        let me = self.me;
        let (tables, pool, scratch) = self.open(slice);
        match delta {
            Delta::Segment(segment) => {
                tables[me].merge(segment, pool, scratch);
                Ok(())
            }
            Delta::Words { words, arena } => {
                let merged = tables[me].merge_words(words, arena, pool, scratch);
                merged.map_err(|malformed| Error::Internal(malformed.what.into()))
            }
        }
    }

    fn complete(&self, frontier: i64, clock: i64) -> Option<WindowId> {
        let windowing = &self.program.windowing;
        let window = self.slices.keys().find_map(|slice| windowing.next_window(*slice, frontier));
        window.filter(|window| windowing.fires_at(*window) <= clock)
    }

    fn fire(&mut self, window: WindowId) -> bool {
        let slice = *self.program.windowing.slices_of(window).start();
        let tables = self.slices.remove(&slice);
        let own = tables.and_then(|tables| tables.into_iter().nth(self.me));
        self.firing = own.map(|table| (window, table, 0));
        self.firing.is_some()
    }

    fn firing(&self) -> Option<Firing> {
        let firing = self.firing.as_ref();
        firing.map(|(window, table, _)| Firing {
            window: *window,
            live_bytes: table.live_bytes() as u64,
        })
    }

    fn step(&mut self) -> Result<Step> {
        let Some((_, table, block)) = &mut self.firing else { return Ok(Step::Over) };
        if *block == table.scan_blocks() {
            return Ok(Step::Over);
        }
        let rows = table.scan(*block);
        *block += 1;
        let both: Vec<usize> = (0..rows.len())
            .filter(|row| rows.word(*row, 1) > 0 && rows.word(*row, 2) > 0)
            .collect();
        let column = |word| -> Int64Array {
            both.iter().map(|row| Some(rows.word(*row, word) as i64)).collect()
        };
        let columns = [("key", column(0)), ("left", column(1)), ("right", column(2))];
        let columns = columns.map(|(name, column)| (name, Arc::new(column) as _));
        let rows = RecordBatch::try_from_iter(columns)?;
        Ok(Step::Rows { rows, times: None, last: *block == table.scan_blocks() })
    }

    fn end_firing(&mut self) {
        self.firing = None;
    }

    fn usage(&mut self, next: Load, room: Load) -> Usage {
        let sum = |part: fn(&Table) -> usize| self.tables().map(part).sum::<usize>() as u64;
        let most = |load| self.tables().map(|table| table.growth_bytes(load)).max().unwrap_or(0);
        let bytes = sum(Table::bytes) + self.pool.bytes() as u64;
        Usage {
            bytes,
            live_bytes: sum(Table::live_bytes),
            keys: sum(Table::rows),
            growth_bytes: most(next) as u64,
            room_bytes: most(next.max(room)) as u64,
            ..Usage::default()
        }
    }

    fn set_aside(&mut self, _: Cut, _: usize) -> Result<Box<dyn SetAside>> {
        let mut tables = AsideTables::default();
        for (slice, of_slice) in &self.slices {
            tables.copy(*slice, of_slice[self.me].copy());
        }
        Ok(Box::new(AsideTally { program: self.program.clone(), tables }))
    }

    fn restore(&mut self, _: usize, rows: &RecordBatch, counting: Option<&[i64]>) -> Result<()> {
        let part = &self.program.saved_parts()[0];
        let restoring = Restoring { name: "tally", part };
        let (words, arena) = restoring.state_rows(rows, &self.program.layout)?;
        let layout = self.program.layout.clone();
        for (slice, range) in restoring.slices(rows, counting)? {
            let width = layout.row_words();
            let words = &words[range.start * width..range.end * width];
            let own = layout.pick(words, &self.leaders, self.me, &mut self.scratch);
            let own = own.map_err(|malformed| restoring.damaged(malformed.what))?;
            self.merge(slice, Delta::Words { words: &own, arena: &arena })?;
        }
        Ok(())
    }

    fn open(&self) -> Vec<SliceId> {
        let holds = |tables: &Vec<Table>| tables.iter().any(|table| table.rows() > 0);
        self.slices.iter().filter(|(_, tables)| holds(tables)).map(|(slice, _)| *slice).collect()
    }
}

/// Rows that are copied.
struct AsideTally {
    program: Arc<Tally>,
    tables: AsideTables,
}

impl SetAside for AsideTally {
    fn save(&mut self, at: &mut SavePoint) -> Result<Option<SavedBatch>> {
        let mut rows = StateRows::default();
        self.tables.fill(at, &mut rows);
        let rows = rows.finish(&self.program.saved_parts()[0], vec![])?;
        Ok(rows.map(|rows| SavedBatch { part: 0, rows }))
    }

    fn copied_bytes(&self) -> usize {
        self.tables.copied_bytes()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::BooleanArray;
    use millstream_state::Arena;

    use super::*;
    use crate::event_time::BEGINNING;
    use crate::expr::Expr;
    use crate::operator::RowTimes;
    use crate::plan::Tumble;

    /// Gives a worker rows of an input; a key below 0 does not pass the filter.
    fn update(worker: &mut dyn Operator, input: usize, slice: SliceId, keys: &[i64]) -> Updated {
        let passes: BooleanArray = keys.iter().map(|key| Some(*key >= 0)).collect();
        let keys = Int64Array::from(keys.to_vec());
        let columns = [("key", Arc::new(keys) as _), ("passes", Arc::new(passes) as _)];
        let rows = RecordBatch::try_from_iter(columns).expect("two columns of one length");
        let rows = Rows::Fired { rows: &rows, slice, times: &RowTimes::Same(None) };
        let batch = Batch { input, rows, filter: Some(&Expr::Column(1)), bytes: 0 };
        worker.update(&batch, None).expect("rows of numbers")
    }

    /// Seals rows for other leaders, and merges the parcels there.
    fn deliver(workers: &mut [Box<dyn Operator>], how: &dyn Fn(SliceId) -> SealSlice) {
        let sealed: Vec<Vec<Parcel>> = workers.iter_mut().map(|w| w.seal(how, false)).collect();
        for (leader, parcel) in sealed.into_iter().flat_map(|all| all.into_iter().enumerate()) {
            for (slice, segment) in parcel.segments {
                let merged = workers[leader].merge(slice, Delta::Segment(&segment));
                merged.expect("rows of this process");
            }
        }
    }

    /// Fires a window; returns its rows.
    fn fire(worker: &mut dyn Operator, window: WindowId) -> Vec<[i64; 3]> {
        let mut fired = Vec::new();
        assert!(worker.fire(window));
        while let Step::Rows { rows, .. } = worker.step().expect("rows") {
            let value = |row, i: usize| rows.column(i).as_primitive::<Int64Type>().value(row);
            fired.extend((0..rows.num_rows()).map(|row| [0, 1, 2].map(|i| value(row, i))));
        }
        let firing = worker.firing().expect("until it is told to end");
        assert_eq!(firing.window, window);
        worker.end_firing();
        assert_eq!(worker.firing(), None);
        fired
    }

    /// Two workers that share the keys of two inputs: all that a job asks of an operator.
    #[test]
    fn the_contract_is_enough_for_two_inputs() {
        let windowing = Windowing::new(Some(Tumble { size_us: 1000, offset_us: 0 }.into()), 0);
        let count = (ValueKind::Count, false);
        let layout = Arc::new(RowLayout::new(1, vec![], &[count, count]));
        let program: Arc<dyn Program> = Arc::new(Tally { windowing, layout });
        let mut workers: Vec<Box<dyn Operator>> = Vec::new();
        for me in 0..2 {
            let leadership = Leadership { me, leaders: 2, of_empty_key: me == 0 };
            workers.push(program.clone().start(leadership, Room::default()));
        }
        let (slice, later) = (windowing.slice_of(500).slice, windowing.slice_of(1500).slice);
        let (closes, later_closes) = (windowing.closes_at(slice), windowing.closes_at(later));

        let left: [&[i64]; 2] = [&[1, 2, 2, 3, -7, 7, 8, 12], &[2, 5, 7, 8, 12]];
        let right: [&[i64]; 2] = [&[2, 3, -7, 6], &[3, 9, 1]];
        for (worker, (left, right)) in workers.iter_mut().zip(left.into_iter().zip(right)) {
            let updated = update(&mut **worker, 0, slice, left);
            assert!(updated.latest == Some(slice) && updated.others_rows > 0);
            update(&mut **worker, 1, slice, right);
            update(&mut **worker, 0, later, &[4]);
            assert!(worker.holds_for_others() && worker.complete(BEGINNING, closes - 1).is_none());
        }
        // Only what the first window has goes to its leaders.
        deliver(&mut workers, &|id| match id == slice {
            true => SealSlice::EndEpoch,
            false => SealSlice::Nothing,
        });
        let half_a_row = Delta::Words { words: &[1, 1], arena: &Arena::default() };
        assert!(workers[0].merge(slice, half_a_row).is_err());
        let mut fired = Vec::new();
        for worker in &mut workers {
            let window = worker.complete(BEGINNING, closes).expect("the first window");
            fired.extend(fire(&mut **worker, window));
            assert_eq!(worker.complete(closes, later_closes - 1), None);
            assert!(worker.usage(Load::rows(1), Load::rows(9)).bytes > 0);
        }
        fired.sort_unstable();
        // Of the other keys none is in both inputs; -7 does not pass the filter.
        assert_eq!(fired, [[1, 1, 1], [2, 3, 1], [3, 1, 2]]);

        // The later window has nothing that both inputs have, and then nothing is left.
        deliver(&mut workers, &|_| SealSlice::EndEpoch);
        for worker in &mut workers {
            let window = worker.complete(closes, later_closes).expect("the later window");
            assert!(!worker.holds_for_others() && fire(&mut **worker, window).is_empty());
            assert_eq!(worker.open(), []);
            assert_eq!(worker.usage(Load::rows(1), Load::rows(9)), Usage::default());
        }
    }
}
