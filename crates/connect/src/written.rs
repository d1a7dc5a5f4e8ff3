//! Whether an input file that does not exist yet may be one that an `INSERT INTO` of the same
//! script writes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use millstream_contract::table::TableOptions;

use crate::options::Options;

/// Whether the file that `table` names lies in a directory that one of `written` names.
pub(crate) fn may_be_written(table: &TableOptions, written: &[TableOptions]) -> bool {
    let Some(file) = place(table) else { return false };
    written.iter().filter_map(place).any(|directory| file.starts_with(directory))
}

/// Where a table's path leads, also where part of it does not exist yet.
fn place(table: &TableOptions) -> Option<PathBuf> {
    let options = Options::new(table);
    let path = options.path(options.text("path")?.trim());
    let mut missing: Vec<OsString> = Vec::new();
    let mut existing: &Path = &path;
    loop {
        let here = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
        if let Ok(found) = here.canonicalize() {
            return Some(missing.into_iter().rev().fold(found, |path, part| path.join(part)));
        }
        missing.push(existing.file_name()?.to_os_string());
        existing = existing.parent()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(path: &str) -> TableOptions {
        let schema = std::sync::Arc::new(arrow::datatypes::Schema::empty());
        let table = TableOptions::new("t", schema, [("path", path)]);
        TableOptions { base_dir: std::env::temp_dir(), ..table }
    }

    #[test]
    fn a_file_in_a_directory_that_is_written_may_come() {
        let sink = |path: &str| [TableOptions { name: "sink".into(), ..table(path) }];
        let read = table("no-such-directory/out/part-0-0");
        assert!(may_be_written(&read, &sink("no-such-directory/out")));
        assert!(may_be_written(&read, &sink("./no-such-directory/out/")));
        assert!(may_be_written(&read, &sink("file://no-such-directory/out")));
        assert!(!may_be_written(&read, &sink("no-such-directory/ou")));
        assert!(!may_be_written(&read, &sink("no-such-directory/out/part-0-0/x")));
        let nowhere = TableOptions { options: [].into(), ..table("") };
        assert!(!may_be_written(&read, &[nowhere]));
    }
}
