//! Refuses files of several formats under one name: no table can be declared of all of them.

use std::path::Path;

use millstream_contract::declaration::literal;
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use super::FormatKind;
use crate::input::Packing;
use crate::source::OneFile;

/// Files with names of one format.
struct OfFormat<'a> {
    format: FormatKind,
    first: &'a str,
    count: usize,
    packed: bool,
}

/// Refuses files whose names promise more than one format; `given` is the common name. A name
/// without a promise fits any format.
pub(super) fn refuse_mixed(given: &str, files: &[OneFile]) -> Result<()> {
    let mut found: Vec<OfFormat<'_>> = Vec::new();
    for file in files {
        let Some(format) = FormatKind::of_name(&file.name) else { continue };
        let packed = Packing::of_name(&file.name).is_some();
        match found.iter_mut().find(|known| known.format == format) {
            Some(known) => (known.count, known.packed) = (known.count + 1, known.packed || packed),
            None => found.push(OfFormat { format, first: &file.name, count: 1, packed }),
        }
    }
    if found.len() < 2 {
        return Ok(());
    }
    let list = |of: &dyn Fn(&OfFormat<'_>) -> String, between: &str| {
        found.iter().map(of).collect::<Vec<_>>().join(between)
    };
    let formats = list(&|of| of.described(), ", ");
    let patterns = list(&|of| literal(&of.pattern(given)), " or ");
    Err(Error::Option {
        table: given.to_string(),
        option: "path".into(),
        message: format!("its files are of several formats: {formats}"),
        help: format!("name those of one format by a pattern: {patterns}"),
    })
}

impl OfFormat<'_> {
    fn described(&self) -> String {
        let name = Path::new(self.first).file_name().unwrap_or_default().to_string_lossy();
        let format = match self.format {
            FormatKind::Tabs => "csv with tabulators",
            other => other.name(),
        };
        match self.count {
            1 => format!("{format} ({name})"),
            more => format!("{format} ({name} and {})", counted(more as u64 - 1, "other")),
        }
    }

    /// Pattern of files like the first, within the given files.
    fn pattern(&self, given: &str) -> String {
        let path = Path::new(self.first);
        let path = match Packing::of_name(self.first) {
            Some(_) => path.with_extension(""),
            None => path.to_path_buf(),
        };
        let ending = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("*.{ending}{}", if self.packed { "*" } else { "" });
        let given = Path::new(given);
        let is_pattern = given.to_string_lossy().contains(['*', '?', '[']);
        let directory = given.parent().filter(|_| is_pattern).unwrap_or(given);
        directory.join(name).display().to_string()
    }
}
