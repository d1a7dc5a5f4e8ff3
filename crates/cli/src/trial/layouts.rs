//! The ways in which a case runs: numbers of workers and processes, lengths of epochs, orders in
//! which batches are taken. A query's rows must be the same in all.

use std::fmt;

/// A way to run a query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Layout {
    pub(crate) processes: usize,
    pub(crate) settings: Vec<(&'static str, String)>,
}

impl Layout {
    fn new(processes: usize, settings: &[(&'static str, &str)]) -> Layout {
        let settings = settings.iter().map(|(key, value)| (*key, (*value).to_string())).collect();
        Layout { processes, settings }
    }

    /// Whether the order in which batches are taken is drawn by chance.
    pub(crate) fn is_simulated(&self) -> bool {
        self.settings.iter().any(|(key, _)| *key == "simulate")
    }
}

/// As it is written on the command line of `millstream run`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.processes > 1 {
            words.push(format!("--processes {}", self.processes));
        }
        for (key, value) in &self.settings {
            words.push(match *key {
                "workers" => format!("--workers {value}"),
                key => format!("--set {key}={value}"),
            });
        }
        f.write_str(&words.join(" "))
    }
}

/// All of them; the first is the plain one.
pub(crate) fn layouts(quick: bool, seeds: u64, processes: usize) -> Vec<Layout> {
    let mut all = vec![Layout::new(1, &[("workers", "1")])];
    if quick {
        return all;
    }
    for (workers, rows, epoch, mode) in [
        ("1", "1", "1", "auto"),
        ("2", "1", "1", "auto"),
        ("2", "16384", "64MB", "pass-through"),
        ("2", "3", "1", "aggregate"),
        ("4", "1", "64MB", "pass-through"),
        ("4", "3", "1", "auto"),
    ] {
        all.push(Layout::new(1, &with(workers, rows, epoch, mode)));
    }
    for seed in 1..=seeds {
        let workers = ["2", "4", "3"][seed as usize % 3];
        let rows = ["1", "3"][seed as usize % 2];
        let epoch = if seed % 4 == 0 { "64MB" } else { "1" };
        let mode = ["auto", "aggregate", "pass-through"][(seed as usize / 2) % 3];
        let mut layout = Layout::new(1, &with(workers, rows, epoch, mode));
        layout.settings.push(("simulate", seed.to_string()));
        all.push(layout);
    }
    if processes > 1 {
        all.push(Layout::new(processes, &with("1", "16384", "64MB", "auto")));
        all.push(Layout::new(processes, &with("2", "1", "1", "auto")));
    }
    all
}

fn with<'a>(
    workers: &'a str,
    rows: &'a str,
    epoch: &'a str,
    mode: &'a str,
) -> [(&'static str, &'a str); 4] {
    [("workers", workers), ("batch.rows", rows), ("epoch.bytes", epoch), ("fragment.mode", mode)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_the_ways_that_were_asked_for() {
        assert_eq!(layouts(true, 8, 2).len(), 1);
        let all = layouts(false, 3, 4);
        assert_eq!(all.iter().filter(|layout| layout.is_simulated()).count(), 3);
        assert_eq!(all.iter().filter(|layout| layout.processes == 4).count(), 2);
        assert!(layouts(false, 0, 1).iter().all(|layout| layout.processes == 1));
        let all: Vec<String> = all.iter().map(Layout::to_string).collect();
        assert!(all.iter().any(|text| text.starts_with("--processes 4 --workers 1 --set")));
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
    }
}
