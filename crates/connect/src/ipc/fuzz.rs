//! A fuzz target: an Arrow file or stream of any content gives rows or an error, never a panic, and
//! the same rows from any position, with any columns left out and through a pipe.

use std::io::Cursor;
use std::sync::Arc;

use millstream_contract::pruning::Pruning;
use millstream_contract::table::Position;

use super::{IpcSplit, schema_of, source};
use crate::fuzz::{check, read};
use crate::input::{Input, Pipe};
use crate::records::Reading;

/// Reads `data` as an Arrow file or stream of the columns that it declares, the first byte choosing
/// what is asked of them. Returns whether it can be read.
///
/// # Panics
///
/// If the rows depend on how it is read, which would be a bug.
#[doc(hidden)]
pub fn fuzz_arrow(data: &[u8]) -> bool {
    let (choice, content) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let Ok((schema, _)) = schema_of(Input::memory(content), "fuzz".into()) else { return false };
    let (schema, pruning) = (Arc::new(schema), Pruning::default());
    let open = |reading: &Reading<'_>| {
        IpcSplit::open(Input::memory(content), reading).map(|split| Box::new(split) as _)
    };
    let whole = check(&open, &schema, usize::from(choice), &pruning);
    // A pipe has a thread of its own, so few are made.
    if choice % 4 == 0 {
        let open = |reading: &Reading<'_>| {
            let pipe = Pipe::new(Box::new(Cursor::new(content.to_vec())));
            IpcSplit::open(Input::Pipe(pipe), reading).map(|split| Box::new(split) as _)
        };
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let piped = read(&open, &schema, &all, Position::default(), &pruning);
        // A file says in its footer what lies where, and its stream may say otherwise.
        let is_stream = !content.starts_with(source::MAGIC);
        if let (true, Some(whole), Ok(piped)) = (is_stream, &whole, piped) {
            assert_eq!(whole.chunks, piped.chunks, "rows depend on how they come");
        }
    }
    whole.is_some()
}
