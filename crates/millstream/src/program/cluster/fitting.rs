//! Whether the settings of a job go with its number of processes.

use millstream_contract::Settings;
use millstream_contract::settings::{Exchange, SettingError};

/// Most processes of a job.
pub const PROCESSES_MAX: usize = 64;
/// Most workers of all processes: each leads at least one of the partitions.
pub const WORKERS_MAX: usize = 256;

/// Whether a job of so many processes can run with these settings.
pub fn check_settings(processes: usize, settings: &Settings) -> Result<(), SettingError> {
    let workers = settings.workers;
    if processes > 1 && settings.simulate.is_some() {
        return Err(SettingError {
            key: "simulate".into(),
            message: "it runs all workers on one thread of one process".into(),
            help: "use --processes 1, or --set simulate=none".into(),
        });
    }
    if settings.simulate.is_some() && settings.exchange != Exchange::LateMerge {
        return Err(SettingError {
            key: "simulate".into(),
            message: "a process that exchanges records has to run on threads".into(),
            help: "use --set exchange=late-merge, or --set simulate=none".into(),
        });
    }
    if processes * workers > WORKERS_MAX {
        let all = processes * workers;
        return Err(SettingError {
            key: "workers".into(),
            message: format!(
                "{processes} processes of {workers} workers are {all}, and {WORKERS_MAX} are the most"
            ),
            help: format!("use at most --workers {}", WORKERS_MAX / processes.max(1)),
        });
    }
    Ok(())
}

/// Whether so much memory can be pinned: an RDMA device takes each process's whole budget when a
/// query starts, and a machine without memory ends whatever runs on it.
pub(super) fn check_pinned(
    processes: usize,
    memory_bytes: u64,
    machine_bytes: u64,
) -> Result<(), SettingError> {
    if memory_bytes.saturating_mul(processes as u64) <= machine_bytes {
        return Ok(());
    }
    let fitting = machine_bytes / 2 / processes as u64;
    Err(SettingError {
        key: "memory".into(),
        message: format!(
            "over fabric 'verbs' each process pins its budget, and {processes} of {} MB are more than the \
             machine's {} MB",
            memory_bytes >> 20,
            machine_bytes >> 20
        ),
        help: format!("use --set memory={}MB, or --fabric shm", fitting >> 20),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_that_are_pinned_have_to_fit_into_the_machine() {
        check_pinned(2, 4 << 30, 8 << 30).unwrap();
        for (processes, memory) in [(2, (4 << 30) + 1), (64, u64::MAX)] {
            assert_eq!(check_pinned(processes, memory, 8 << 30).unwrap_err().key, "memory");
        }
        let message = check_pinned(4, 3 << 30, 8 << 30).unwrap_err().to_string();
        assert!(message.contains("4 of 3072 MB are more than the machine's 8192 MB"), "{message}");
        assert!(message.contains("--set memory=1024MB"), "{message}");
    }
}
