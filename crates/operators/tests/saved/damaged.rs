//! Saved state that is damaged: an error, or other rows; never a panic.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, StringArray, new_null_array,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use millstream_contract::error::Error;
use millstream_contract::plan::*;
use millstream_operators::event_time::END;
use millstream_operators::operator::Program;
use millstream_operators::operator::saved::SavedBatch;

use crate::MS;
use crate::data::chunks;
use crate::plans::{aggregate, calls, joined, ranked};
use crate::random::Random;
use crate::run::Run;

/// State of some rows.
fn saved(program: &Arc<dyn Program>, inputs: u64, seed: u64) -> (Run, Vec<SavedBatch>) {
    let mut random = Random::new(seed);
    let mut run = Run::new(program, inputs, 2, None);
    for chunk in chunks(&mut random, 12, 20, inputs, 25 * MS as u64) {
        run.take(&chunk, 1, random.below(2) as usize).expect("rows that fit");
    }
    let saved = run.save(200, 1 << 20).expect("rows");
    (run, saved)
}

fn plans() -> Vec<(Arc<dyn Program>, u64)> {
    let hop = Window::Hop(Hop { slide_us: 10 * MS, size_us: 50 * MS, offset_us: 0 });
    let tumble = Window::Tumble(Tumble { size_us: 10 * MS, offset_us: 0 });
    let session = Window::Session(Session { gap_us: 20 * MS, partition: 1, slices_of_gap: 1 });
    let as_of = Window::Interval(Interval::AS_OF);
    let mut plans = Vec::new();
    for (window, packs) in
        [(hop, 1), (hop, 6), (tumble, 1), (tumble, 6), (session, 1), (session, 6)]
    {
        plans.push((aggregate(Some(window), packs, &[1], calls(), 0), 1));
    }
    plans.push((aggregate(Some(hop), 1, &[1], ranked(Ranking::RowNumber), 0), 1));
    plans.push((aggregate(Some(session), 1, &[1], ranked(Ranking::All), 0), 1));
    plans.push((joined(JoinKind::Full, Some(tumble), false, None, &[1, 0]), 2));
    plans.push((joined(JoinKind::Left, Some(as_of), true, None, &[1]), 2));
    plans.push((joined(JoinKind::Inner, None, false, Some(1), &[]), 2));
    plans
}

/// Bytes with a bit changed.
fn flip(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if !bytes.is_empty() {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
    }
    bytes
}

/// A column with a bit or a value changed, or in other pieces.
fn damaged(column: &ArrayRef, random: &mut Random) -> ArrayRef {
    let rows = column.len();
    match column.data_type() {
        DataType::Binary if random.one_in(2) => {
            let column = column.as_binary::<i32>();
            let bytes = Buffer::from(flip(column.value_data(), random));
            let offsets = column.offsets().clone();
            Arc::new(BinaryArray::new(offsets, bytes, column.nulls().cloned()))
        }
        DataType::Binary => {
            let column = column.as_binary::<i32>();
            let all = random.below(column.value_data().len() as u64 + 1) as i32;
            let ends = column.value_offsets().iter().map(|end| (*end).min(all));
            let offsets = OffsetBuffer::new(ScalarBuffer::from(ends.collect::<Vec<_>>()));
            let bytes = Buffer::from(column.value_data());
            Arc::new(BinaryArray::new(offsets, bytes, column.nulls().cloned()))
        }
        DataType::Int64 => {
            let mut values = column.as_primitive::<Int64Type>().values().to_vec();
            let at = random.below(rows as u64) as usize;
            values[at] = match random.below(4) {
                0 => i64::MIN,
                1 => i64::MAX,
                2 => values[at].wrapping_add(1),
                _ => values[at] ^ 1 << random.below(64),
            };
            Arc::new(Int64Array::new(values.into(), column.nulls().cloned()))
        }
        DataType::Utf8 => {
            let other = ["", "another", "another text, which is longer than it was"];
            let other = other[random.below(3) as usize];
            Arc::new(StringArray::from(vec![other; rows]))
        }
        other => new_null_array(other, rows),
    }
}

/// A batch with a damaged column.
fn with_damage(rows: &RecordBatch, random: &mut Random) -> RecordBatch {
    let fields = rows.schema_ref().fields().iter().enumerate();
    let all: Vec<usize> = fields.map(|(at, _)| at).collect();
    let mut columns = rows.columns().to_vec();
    let at = random.pick(&all);
    columns[at] = damaged(&columns[at], random);
    let fields = rows.schema_ref().fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Schema::new(fields.collect::<Vec<Field>>());
    RecordBatch::try_new(Arc::new(schema), columns).expect("columns of one length")
}

#[test]
fn damage_ends_in_an_error_that_names_the_part_or_in_other_rows() {
    let mut refused = 0;
    for (number, (program, inputs)) in plans().into_iter().enumerate() {
        let (run, whole) = saved(&program, inputs, number as u64);
        assert!(whole.len() > 1, "{}", program.name());
        let parts: Vec<String> =
            program.saved_parts().iter().map(|part| format!("part '{}'", part.name)).collect();
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let hit = random.below(whole.len() as u64) as usize;
            let batches: Vec<SavedBatch> = whole
                .iter()
                .enumerate()
                .map(|(at, SavedBatch { part, rows })| {
                    let rows = match at == hit {
                        true => with_damage(rows, &mut random),
                        false => rows.clone(),
                    };
                    SavedBatch { part: *part, rows }
                })
                .collect();
            let mut next = run.empty(1 + random.below(3) as usize);
            match next.restore(&batches) {
                Ok(()) => drop(next.resume().and_then(|()| next.fire(END))),
                Err(Error::Io { place, .. }) => {
                    assert!(place.contains(&parts[batches[hit].part]), "{place}");
                    refused += 1;
                }
                Err(other) => panic!("{}: {other}", program.name()),
            }
        }
    }
    assert!(refused > 500, "{refused} refused");
}

/// Columns that are not there, of other types, or of a part of a batch.
#[test]
fn batches_of_another_form_are_refused() {
    let plans = plans();
    let (program, _) = &plans[0];
    let (run, whole) = saved(program, 1, 7);
    let rows = whole.iter().map(|batch| &batch.rows).find(|rows| rows.num_rows() > 2);
    let rows = rows.expect("some rows");
    let refused = |rows: RecordBatch| {
        let batch = SavedBatch { part: 0, rows };
        run.empty(1).restore(&[batch]).expect_err("another form").to_string()
    };
    let without = |name: &str| {
        let at = rows.schema_ref().index_of(name).expect("a column");
        rows.project(&(0..rows.num_columns()).filter(|c| *c != at).collect::<Vec<_>>())
    };
    for (name, is) in [
        ("$slice", "there is no column '$slice'"),
        ("$row0", "there is no column '$row0'"),
        ("$values", "there is no column '$values'"),
    ] {
        assert!(refused(without(name).expect("columns")).contains(is), "{name}");
    }
    for part in [rows.slice(0, 1), rows.slice(1, rows.num_rows() - 1)] {
        assert!(refused(part).contains("not whole"));
    }
    let (other, _) = &plans[6];
    let (_, of_other) = saved(other, 1, 7);
    let is = refused(of_other[0].rows.clone());
    assert!(is.contains("column '$row"), "{is}");
    // Columns for readers may be left out.
    let names = rows.schema_ref().fields().iter().map(|field| field.name().starts_with('$'));
    let hidden: Vec<usize> =
        names.enumerate().filter(|(_, is)| *is).map(|(column, _)| column).collect();
    let rows = rows.project(&hidden).expect("columns");
    run.empty(1).restore(&[SavedBatch { part: 0, rows }]).expect("all that it needs");
}
