//! How much memory this process may use: the machine's memory, or the limit of its cgroup or of its
//! address space, if that is less.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Where the system does not say.
const UNKNOWN_BYTES: u64 = 4 << 30;
/// Address space that is not for data: the program itself, and what stacks and the allocator's
/// arenas reserve and hardly use. A query that is planned has a stack of 256 MB.
const RESERVED_BYTES: u64 = 384 << 20;

/// Bytes that this process may use at the most: the least of the machine's memory, the limits of
/// its cgroup and of those above that, and what its limit of address space (`ulimit -v`) leaves for
/// data.
pub(crate) fn available_memory_bytes() -> u64 {
    available_under(Path::new("/"))
}

/// As [`available_memory_bytes`], for the system whose files stand in `root`.
fn available_under(root: &Path) -> u64 {
    let machine = machine_under(root).unwrap_or(UNKNOWN_BYTES);
    let limits = [cgroups_under(root), address_space_under(root)];
    limits.into_iter().flatten().fold(machine, u64::min)
}

/// Physical memory of the machine, or a cautious guess where the system does not say.
pub fn machine_memory_bytes() -> u64 {
    machine_under(Path::new("/")).unwrap_or(UNKNOWN_BYTES)
}

fn machine_under(root: &Path) -> Option<u64> {
    let text = read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

fn address_space_under(root: &Path) -> Option<u64> {
    let text = read_to_string(root.join("proc/self/limits")).ok()?;
    let soft = text.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let bytes: u64 = soft.split_whitespace().next()?.parse().ok()?;
    Some(bytes.saturating_sub(RESERVED_BYTES).max(bytes / 4))
}

/// The least limit of the process's cgroups and of all above them, as far as they can be seen.
fn cgroups_under(root: &Path) -> Option<u64> {
    let of_process = read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = read_to_string(root.join("proc/self/mountinfo")).ok()?;
    of_process.lines().filter_map(|line| cgroup_limit(root, line, &mounts)).min()
}

/// The least limit of one of the process's cgroups, `hierarchy:controllers:path`. A line of version
/// 2 names no controllers.
fn cgroup_limit(root: &Path, line: &str, mounts: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (file_system, limit_file) = match controllers {
        "" => ("cgroup2", "memory.max"),
        some if some.split(',').any(|name| name == "memory") => ("cgroup", "memory.limit_in_bytes"),
        _ => return None,
    };
    let (shown, mount) = mounts.lines().filter_map(Mount::of_line).find_map(|mount| {
        let memory = controllers.is_empty() || mount.options.split(',').any(|o| o == "memory");
        (mount.file_system == file_system && memory).then_some((mount.root, mount.point))
    })?;
    let top = root.join(mount.trim_start_matches('/'));
    // What is mounted may begin below the root of all cgroups, as in a container.
    let below = Path::new(path).strip_prefix(shown).unwrap_or(Path::new(""));
    let cgroup: PathBuf = top.join(below);
    let limits = cgroup.ancestors().take_while(|cgroup| cgroup.starts_with(&top));
    let limit = |cgroup: &Path| read_to_string(cgroup.join(limit_file)).ok()?.trim().parse().ok();
    limits.filter_map(limit).min()
}

/// A line of `mountinfo`, as far as it matters here.
struct Mount<'a> {
    /// The mounted part of the file system.
    root: &'a str,
    /// Where.
    point: &'a str,
    file_system: &'a str,
    /// Of the file system.
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn of_line(line: &'a str) -> Option<Mount<'a>> {
        let (place, system) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut system = system.split(' ');
        Some(Mount {
            root: place.next()?,
            point: place.next()?,
            file_system: system.next()?,
            options: system.nth(1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MIB: u64 = 1 << 20;
    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "33 32 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      34 32 0:30 / /sys/fs/cgroup/memory rw shared:17 - cgroup cgroup rw,memory\n";

    /// Available memory of a system of 8 GiB with these files besides.
    fn available(name: &str, files: &[(&str, &str)]) -> u64 {
        let root = std::env::temp_dir().join(format!("millstream-{name}-{}", std::process::id()));
        let meminfo = ("proc/meminfo", "MemTotal:        8388608 kB\nMemFree:  12 kB\n");
        for (path, text) in [meminfo].iter().chain(files) {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        }
        let bytes = available_under(&root);
        fs::remove_dir_all(&root).expect("it is ours");
        bytes
    }

    #[test]
    fn the_machine_counts_where_there_is_no_limit() {
        assert_eq!(available("free", &[]), 8192 * MIB);
        let limits = "Limit   Soft Limit   Hard Limit   Units\n\
                      Max data size             unlimited            unlimited            bytes\n\
                      Max address space         unlimited            1                    bytes\n";
        let files = [
            ("proc/self/limits", limits),
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
        ];
        assert_eq!(available("unlimited", &files), 8192 * MIB);
    }

    #[test]
    fn address_space_counts() {
        for (name, bytes, expected) in
            [("much", 1024 * MIB, 640 * MIB), ("little", 400 * MIB, 100 * MIB)]
        {
            let limits = format!("Max address space  {bytes}  unlimited  bytes\n");
            assert_eq!(available(name, &[("proc/self/limits", &limits)]), expected);
        }
    }

    /// The limit may be in the own cgroup, in a cgroup above, or in both.
    #[test]
    fn the_least_limit_of_nested_cgroups_counts() {
        for (name, own, above, expected) in [
            ("own", "104857600", "max", 100),
            ("above", "max", "209715200", 200),
            ("both", "314572800", "209715200", 200),
        ] {
            let files = [
                ("proc/self/cgroup", "0::/user.slice/job/run\n"),
                ("proc/self/mountinfo", V2),
                ("sys/fs/cgroup/user.slice/memory.max", above),
                ("sys/fs/cgroup/user.slice/job/run/memory.max", own),
            ];
            assert_eq!(available(name, &files), expected * MIB, "{name}");
        }
    }

    #[test]
    fn the_first_version_of_cgroups_has_its_own_hierarchies() {
        // Where nothing is said there is a number beyond all memory.
        let none = "9223372036854771712\n";
        let files = [
            ("proc/self/cgroup", "5:cpu:/other\n4:memory:/job/run\n0::/\n"),
            ("proc/self/mountinfo", V1),
            ("sys/fs/cgroup/cpu/other/memory.limit_in_bytes", "1\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", none),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "524288000\n"),
            ("sys/fs/cgroup/memory/job/run/memory.limit_in_bytes", none),
        ];
        assert_eq!(available("first", &files), 500 * MIB);
    }

    /// In a container the process may be told its path from outside, of which the mount shows a
    /// part.
    #[test]
    fn a_container_sees_its_cgroup_at_the_mount() {
        let mounted = "34 32 0:30 /pod/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        for (name, path) in [("outside", "/pod/c1/run"), ("other", "/elsewhere")] {
            let line = format!("4:memory:{path}\n");
            let files = [
                ("proc/self/cgroup", line.as_str()),
                ("proc/self/mountinfo", mounted),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "73400320\n"),
            ];
            assert_eq!(available(name, &files), 70 * MIB, "{name}");
        }
    }
}
