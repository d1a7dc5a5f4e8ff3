//! Firing: a complete window's sides are matched (paper, section 5.2).
//!
//! The side with fewer rows is read into columns and indexed by key. Then the buffers of the other
//! side are read one after the other, and their rows looked up. Last come rows without a partner,
//! where these are given. Each step does a bounded part of that; buffers that have been read are
//! free again.

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow::compute::{cast, filter, take};
use arrow::datatypes::{SchemaRef, UInt32Type};

use super::bags::Bags;
use super::gathered::Gathering;
use super::pairs::{Built, PAIRS_MAX, Pairs, Probed};
use super::program::JoinProgram;
use super::sides::{JoinSide, Kept, SideColumns};
use super::slice::VersionsOfSlice;
use super::versions::Versions;
use crate::columns::inputs::true_mask;
use crate::error::Result;
use crate::operator::finish::ResultRows;
use crate::operator::{Firing, Step};
use crate::passed::{Passed, PassedRows, Reader};
use crate::plan::JoinKind;
use crate::windowing::WindowId;

/// Rows that are read in a step, at least, if there are so many.
const READ_ROWS: usize = 8192;

/// A window of so many rows fires in a step, but for many pairs.
const FEW_ROWS: usize = 512;

/// A window that is firing.
pub(super) struct FiringJoin {
    window: WindowId,
    /// Buffers that have not been read; the next is the last.
    rest: [Vec<PassedRows>; 2],
    live_bytes: usize,
    /// The number of the side with fewer rows.
    small: usize,
    few: bool,
    sifted: Sifted,
    reader: Reader,
    phase: Phase,
    pairs: Pairs,
    result: ResultRows,
}

/// How many rows of the large side have been read, and how many of these may have a partner.
#[derive(Default)]
struct Sifted {
    rows: usize,
    kept: usize,
}

impl Sifted {
    /// Whether a look-up before a row is read is likely to save more than its cost.
    fn pays(&self) -> bool {
        2 * self.kept <= self.rows
    }

    fn add(&mut self, rows: usize, kept: usize) {
        (self.rows, self.kept) = (self.rows + rows, self.kept + kept);
    }
}

enum Phase {
    /// The small side is being read.
    Building(Gathering<'static>),
    /// Of a temporal join: rows of the left side look for their versions.
    AsOf(VersionsOfSlice),
    /// The other one's rows are looked up.
    Probing(Built, Option<Probed>),
    /// Rows of the small side that have no partner, or, of some kinds, that have one, are given:
    /// the number of the next.
    Unmatched(Built, usize),
    Over,
}

impl FiringJoin {
    /// Firing of a window with these rows; `None` if there can be no result.
    pub(super) fn new(
        program: &JoinProgram,
        window: WindowId,
        own: [Passed; 2],
    ) -> Option<FiringJoin> {
        let rows = [own[0].rows(), own[1].rows()];
        let kind = program.kind;
        let lacks = match rows {
            [0, 0] => true,
            _ if program.as_of => false,
            [0, _] => !kind.keeps_right(),
            [_, 0] => !kind.keeps_left(),
            _ => false,
        };
        if lacks {
            return None;
        }
        let few = rows[0] + rows[1] <= FEW_ROWS;
        let small = if program.as_of { 1 } else { usize::from(rows[1] < rows[0]) };
        let live_bytes = own.iter().map(Passed::live_bytes).sum();
        let rest = own.map(|mut bag| bag.take());
        let reader = Reader::new(program.sides[0].format.clone());
        let phase = Phase::Building(Gathering::new(&program.sides[small], rows[small]));
        let result = ResultRows::bounded(program.bounds_of(window), PAIRS_MAX.max(READ_ROWS));
        let (pairs, sifted) = Default::default();
        Some(FiringJoin {
            window,
            rest,
            live_bytes,
            small,
            few,
            sifted,
            reader,
            phase,
            pairs,
            result,
        })
    }

    pub(super) fn firing(&self) -> Firing {
        Firing { window: self.window, live_bytes: self.live_bytes as u64 }
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over) && !self.result.are_left()
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        let rest = self.rest.iter().flatten().map(PassedRows::bytes).sum::<usize>();
        rest + match &self.phase {
            Phase::Building(gathering) => gathering.bytes(),
            Phase::AsOf(slice) => slice.bytes(),
            Phase::Probing(built, probed) => {
                built.bytes() + probed.as_ref().map_or(0, Probed::bytes)
            }
            Phase::Unmatched(built, _) => built.bytes(),
            Phase::Over => 0,
        }
    }

    /// Buffers that have not been read.
    pub(super) fn rest(self) -> impl Iterator<Item = PassedRows> {
        self.rest.into_iter().flatten()
    }

    /// Goes on, for a bounded time.
    pub(super) fn step(
        &mut self,
        program: &JoinProgram,
        bags: &mut Bags,
        versions: &mut Versions,
    ) -> Result<Step> {
        if self.is_over() {
            return Ok(Step::Over);
        }
        while !self.result.are_left() {
            match self.next(program, bags, versions)? {
                Some(rows) => match program.time {
                    Some(time) => self.result.give_timed(rows, time)?,
                    None => self.result.give(rows),
                },
                None if self.is_over() => return Ok(Step::Over),
                None if self.few => {}
                None => return Ok(Step::Working),
            }
        }
        let (rows, times) = self.result.project(&program.finisher)?;
        Ok(Step::Rows { rows, times, last: self.is_over() })
    }

    /// The next rows that are given, over the columns of a pair; `None`: there are none yet.
    fn next(
        &mut self,
        program: &JoinProgram,
        bags: &mut Bags,
        versions: &mut Versions,
    ) -> Result<Option<RecordBatch>> {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let (small, large) = (self.small, 1 - self.small);
        match phase {
            Phase::Building(mut gathering) => {
                self.read(program, small, &mut gathering, bags)?;
                self.phase = match self.rest[small].is_empty() {
                    false => Phase::Building(gathering),
                    true if program.as_of => {
                        let side = &program.sides[1];
                        Phase::AsOf(VersionsOfSlice::new(
                            side,
                            gathering.finish(side)?,
                            &program.pair,
                        )?)
                    }
                    true => {
                        let side = &program.sides[small];
                        let columns = gathering.finish(side)?;
                        let marks = program.gives_late(small);
                        let equal = program.nulls_are_equal;
                        Phase::Probing(Built::new(side, columns, equal, marks), None)
                    }
                };
                Ok(None)
            }
            Phase::AsOf(slice) => self.as_of(program, slice, bags, versions),
            Phase::Probing(built, None) => {
                if self.rest[large].is_empty() {
                    self.phase = match program.gives_late(small) {
                        true => Phase::Unmatched(built, 0),
                        false => Phase::Over,
                    };
                    return Ok(None);
                }
                self.look_up(program, built, bags)
            }
            Phase::Probing(mut built, Some(probed)) => {
                let (rows, probed) = self.probe(program, &mut built, probed)?;
                self.phase = Phase::Probing(built, probed);
                Ok(rows)
            }
            Phase::Unmatched(built, first) => {
                let end = (first + PAIRS_MAX).min(built.columns.rows);
                let rows =
                    self.alone(program, small, &built.columns, &built.matched, first..end)?;
                if end < built.columns.rows {
                    self.phase = Phase::Unmatched(built, end);
                }
                Ok(rows)
            }
            Phase::Over => Ok(None),
        }
    }

    /// Reads the next rows of the large side, and looks them up.
    fn look_up(
        &mut self,
        program: &JoinProgram,
        mut built: Built,
        bags: &mut Bags,
    ) -> Result<Option<RecordBatch>> {
        let large = 1 - self.small;
        let side = &program.sides[large];
        // Rows without a partner are not even read, where nothing is given of them.
        let marks = program.gives_late(large);
        let sifts = !marks && self.sifted.pays();
        let next = self.rest[large].last().and_then(PassedRows::batch_rows);
        let (read, columns) = match next {
            Some(rows) => {
                let columns = SideColumns::in_place(side, rows, sifts.then_some(&built));
                (self.rest[large].pop().map_or(0, |rows| rows.rows()), columns)
            }
            None => {
                let mut gathering = match sifts {
                    true => Gathering::among(side, &built),
                    false => Gathering::new(side, READ_ROWS),
                };
                let read = self.read(program, large, &mut gathering, bags)?;
                (read, gathering.finish(side)?)
            }
        };
        if sifts {
            self.sifted.add(read, columns.rows);
            if columns.rows == 0 {
                self.phase = Phase::Probing(built, None);
                return Ok(None);
            }
        }
        let probed = Probed::new(side, columns, &built, marks);
        let (rows, probed) = self.probe(program, &mut built, probed)?;
        self.phase = Phase::Probing(built, probed);
        Ok(rows)
    }

    /// The next rows of the left side with their versions. When there are no more, the versions of
    /// the slice are kept for later ones.
    fn as_of(
        &mut self,
        program: &JoinProgram,
        slice: VersionsOfSlice,
        bags: &mut Bags,
        versions: &mut Versions,
    ) -> Result<Option<RecordBatch>> {
        let [side, other] = &program.sides;
        if self.rest[0].is_empty() {
            versions.take_in(other, slice)?;
            return Ok(None);
        }
        let mut gathering = Gathering::new(side, READ_ROWS);
        self.read(program, 0, &mut gathering, bags)?;
        let rows = program.as_of(&gathering.finish(side)?, &slice, versions)?;
        self.phase = Phase::AsOf(slice);
        Ok(rows)
    }

    /// Reads the next buffers of a side; returns how many rows these have.
    fn read(
        &mut self,
        program: &JoinProgram,
        side: usize,
        gathering: &mut Gathering<'_>,
        bags: &mut Bags,
    ) -> Result<usize> {
        let mut read = 0;
        while read < READ_ROWS
            && let Some(rows) =
                self.rest[side].pop_if(|rows| read == 0 || rows.batch_rows().is_none())
        {
            gathering.read(&program.sides[side], &mut self.reader, &rows)?;
            read += rows.rows();
            bags.reuse(rows);
        }
        Ok(read)
    }

    /// Looks the next rows up. When all have been looked up, those without a partner are given, if
    /// the join gives such rows, and nothing is left of them.
    fn probe(
        &mut self,
        program: &JoinProgram,
        built: &mut Built,
        mut probed: Probed,
    ) -> Result<(Option<RecordBatch>, Option<Probed>)> {
        let (small, large) = (self.small, 1 - self.small);
        if !probed.is_over() {
            let sides = [&program.sides[large], &program.sides[small]];
            probed.find(sides, built, &mut self.pairs);
            let rows = self.paired(program, built, &mut probed)?;
            let is_over = probed.is_over() && !program.gives_late(large);
            return Ok((rows, (!is_over).then_some(probed)));
        }
        let all = 0..probed.columns.rows;
        let rows = self.alone(program, large, &probed.columns, &probed.matched, all)?;
        Ok((rows, None))
    }

    /// Results of the pairs found so far: the pairs themselves, or marks on rows with a partner.
    fn paired(
        &mut self,
        program: &JoinProgram,
        built: &mut Built,
        probed: &mut Probed,
    ) -> Result<Option<RecordBatch>> {
        if self.pairs.built.is_empty() {
            return Ok(None);
        }
        let Pairs { probed: probed_rows, built: built_rows } = std::mem::take(&mut self.pairs);
        let (mut probed_rows, mut built_rows) =
            (UInt32Array::from(probed_rows), UInt32Array::from(built_rows));
        if let Some(condition) = &program.condition {
            let probed = (&probed.columns, Some(&probed_rows));
            let built = (&built.columns, Some(&built_rows));
            let looked_at = program.looked_at.as_deref();
            let rows = self.batch((&program.compared, true), looked_at, probed, built, program)?;
            let mask = true_mask(condition, &rows)?.into();
            let kept = |rows: &UInt32Array| -> Result<UInt32Array> {
                Ok(filter(rows, &mask)?.as_primitive::<UInt32Type>().clone())
            };
            (probed_rows, built_rows) = (kept(&probed_rows)?, kept(&built_rows)?);
        }
        let mark = |matched: &mut Vec<bool>, rows: &UInt32Array| {
            if !matched.is_empty() {
                rows.values().iter().for_each(|row| matched[*row as usize] = true);
            }
        };
        mark(&mut probed.matched, &probed_rows);
        mark(&mut built.matched, &built_rows);
        if !program.kind.gives_pairs() || built_rows.is_empty() {
            return Ok(None);
        }
        let probed = (&probed.columns, Some(&probed_rows));
        let built = (&built.columns, Some(&built_rows));
        let rows = self.batch((&program.fired, true), None, probed, built, program)?;
        self.pairs = Pairs { probed: into_vec(probed_rows), built: into_vec(built_rows) };
        Ok(Some(rows))
    }

    /// Rows of a side, within a range, that are given by themselves: rows without a partner, or, of
    /// a semi-join, with one.
    fn alone(
        &self,
        program: &JoinProgram,
        side: usize,
        columns: &SideColumns,
        matched: &[bool],
        range: std::ops::Range<usize>,
    ) -> Result<Option<RecordBatch>> {
        let wanted = program.kind == JoinKind::LeftSemi;
        let given = range.filter(|row| matched[*row] == wanted).map(|row| row as u32);
        let rows = UInt32Array::from_iter_values(given);
        if rows.is_empty() {
            return Ok(None);
        }
        let nothing = SideColumns::default();
        let (own, other) = ((columns, Some(&rows)), (&nothing, None));
        // The first is of the large side.
        let (large, small) = if side == self.small { (other, own) } else { (own, other) };
        let both = program.kind.gives_pairs();
        self.batch((&program.fired, both), None, large, small, program).map(Some)
    }

    /// Rows of the large side next to rows of the small one, `None` for NULLs: the columns of
    /// `both`, or of the left side alone. Of `looked_at`, if given, other columns are NULL.
    fn batch(
        &self,
        (schema, both): (&SchemaRef, bool),
        looked_at: Option<&[usize]>,
        large: (&SideColumns, Option<&UInt32Array>),
        small: (&SideColumns, Option<&UInt32Array>),
        program: &JoinProgram,
    ) -> Result<RecordBatch> {
        let places = [large, small].map(|(rows, places)| places.map(|p| rows.places_of(p)));
        let [large, small] = [(large.0, places[0].as_ref()), (small.0, places[1].as_ref())];
        let [left, right] = if self.small == 0 { [small, large] } else { [large, small] };
        let count = left.1.or(right.1).map_or(0, |places| places.len());
        let mut columns: Vec<ArrayRef> = self.result.bounds(count);
        let sides = [left, right].into_iter().zip(&program.sides);
        let mut shared = Shared::of(&program.sides[1 - self.small], large, small.1.is_some());
        for ((rows, places), side) in sides.take(if both { 2 } else { 1 }) {
            for column in 0..side.shown {
                let field = schema.field(columns.len());
                if looked_at.is_some_and(|looked_at| !looked_at.contains(&columns.len())) {
                    columns.push(new_null_array(field.data_type(), count));
                    continue;
                }
                columns.push(match (places, shared.column(side.columns[column].kept)?) {
                    (None, _) => new_null_array(field.data_type(), count),
                    (_, Some(taken)) if taken.data_type() == field.data_type() => taken,
                    (Some(places), _) => {
                        let taken = take(&rows.columns[column], places, None)?;
                        // A text may have been of the large type.
                        match taken.data_type() == field.data_type() {
                            true => taken,
                            false => cast(&taken, field.data_type())?,
                        }
                    }
                });
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    }
}

/// Key columns with the same values in both rows of a pair: taken once, from the side whose rows
/// are in sequence.
struct Shared<'a> {
    side: &'a JoinSide,
    columns: &'a SideColumns,
    /// `None`: rows have no partners.
    places: Option<&'a UInt32Array>,
    taken: Vec<(Kept, ArrayRef)>,
}

impl<'a> Shared<'a> {
    fn of(
        side: &'a JoinSide,
        (columns, places): (&'a SideColumns, Option<&'a UInt32Array>),
        are_pairs: bool,
    ) -> Shared<'a> {
        Shared { side, columns, places: places.filter(|_| are_pairs), taken: Vec::new() }
    }

    /// The column of kept value `kept`, if it is among these columns.
    fn column(&mut self, kept: Kept) -> Result<Option<ArrayRef>> {
        let (Kept::Key(_), Some(places)) = (kept, self.places) else { return Ok(None) };
        if let Some((_, taken)) = self.taken.iter().find(|(known, _)| *known == kept) {
            return Ok(Some(taken.clone()));
        }
        let column = self.side.columns.iter().position(|column| column.kept == kept);
        let Some(column) = column else { return Ok(None) };
        let taken = take(&self.columns.columns[column], places, None)?;
        self.taken.push((kept, taken.clone()));
        Ok(Some(taken))
    }
}

/// The memory of a column, to be used again.
fn into_vec(column: UInt32Array) -> Vec<u32> {
    let (_, values, _) = column.into_parts();
    values.into_inner().into_vec().unwrap_or_default()
}

impl JoinProgram {
    /// Whether rows of a side are given once it is known which of them have a partner. Then that is
    /// marked.
    fn gives_late(&self, side: usize) -> bool {
        match side {
            0 => self.kind.keeps_left() || self.kind == JoinKind::LeftSemi,
            _ => self.kind.keeps_right(),
        }
    }
}
