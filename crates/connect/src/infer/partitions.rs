//! Columns whose values stand in the names of directories, as Hive has them:
//! `day=2024-05-01/page=7`.

use std::path::{Component, Path};

use millstream_contract::declaration::{Declaration, DeclaredColumn};

use super::declared_type;
use super::value::{ValueStats, shape};
use crate::files::partition_in;
use crate::source::OneFile;

/// Adds the columns that the directories of all files have, from `base_dir` on, unless the files
/// have columns of these names.
pub(super) fn add(found: &mut Declaration, files: &[OneFile], base_dir: &Path) {
    let mut paths = files.iter().map(|file| partitions(file, base_dir));
    let Some(first) = paths.next() else { return };
    let mut columns: Vec<(String, ValueStats)> = Vec::new();
    for (name, value) in first {
        let same = |known: &str| known.to_lowercase() == name.to_lowercase();
        let computed = found.computed.iter().map(|computed| &computed.name);
        let known = found.columns.iter().map(|column| &column.name).chain(computed);
        if !known.chain(columns.iter().map(|(name, _)| name)).any(|known| same(known)) {
            let mut values = ValueStats::default();
            add_value(&mut values, value);
            columns.push((name, values));
        }
    }
    for path in paths {
        columns.retain_mut(|(name, values)| {
            let same = |(other, _): &&(String, _)| other.to_lowercase() == name.to_lowercase();
            let found = path.iter().find(same);
            if let Some((_, value)) = found {
                add_value(values, value.clone());
            }
            found.is_some()
        });
    }
    for (name, values) in columns {
        let (sql_type, note) = (declared_type(&values.data_type()), None);
        found.partitioned_by.push(name.clone());
        found.columns.push(DeclaredColumn { name, sql_type, note });
    }
}

fn add_value(values: &mut ValueStats, value: Option<String>) {
    match value {
        Some(text) => values.add(shape(text.as_bytes())),
        None => values.add_null(),
    }
}

/// Names and values in the directories of a file.
fn partitions(file: &OneFile, base_dir: &Path) -> Vec<(String, Option<String>)> {
    let path = Path::new(&*file.name);
    let below = path.strip_prefix(base_dir).unwrap_or(path).parent().unwrap_or(Path::new(""));
    let directory = |part: Component<'_>| partition_in(part.as_os_str().to_str()?);
    below.components().filter_map(directory).collect()
}
