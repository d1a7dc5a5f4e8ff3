//! Advice about a missing file: a similar name, or where paths start.

use std::path::Path;

use millstream_contract::settings::closest;

/// Looks at the deepest directory that exists for something with a similar name.
/// `start` says where such paths start.
pub(crate) fn missing_help(path: &Path, start: &str) -> String {
    let mut missing = path;
    while let Some(parent) = missing.parent() {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if !parent.is_dir() {
            missing = parent;
            if parent == Path::new(".") {
                break;
            }
            continue;
        }
        let name = missing.file_name().unwrap_or_default().to_string_lossy();
        let names = entries(parent);
        let similar = closest(&name, names.iter().map(String::as_str));
        return match similar {
            Some(similar) => format!("did you mean '{}'?", parent.join(similar).display()),
            None if missing == path => start.to_string(),
            None => format!("there is no directory '{}'; {start}", missing.display()),
        };
    }
    start.to_string()
}

fn entries(directory: &Path) -> Vec<String> {
    let Ok(read) = std::fs::read_dir(directory) else { return Vec::new() };
    // A directory may be huge; a help line is not worth reading it whole.
    read.take(10_000).flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}
