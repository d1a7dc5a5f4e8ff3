//! The limits of this process on open files, on the size of files and on threads. Channels between
//! two processes take some files, and shared memory is a file, too.

use std::io;

/// Raises the limit of open files of this process to the system's hard limit. Child processes
/// inherit the limit.
pub fn raise_open_files() -> io::Result<()> {
    let mut limit = open_files()?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the call only reads the structure that it is given.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn open_files() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure that it is given, or fails.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The error of a thread that the system refuses.
pub(super) fn without_thread(error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "the system refuses a thread ({error})\n  help: raise the limit of address space (ulimit -v) \
         or of processes (ulimit -u), or use fewer --processes or --workers"
    ))
}

/// Whether a message, in whichever words, is about too many open files: errors of the system end in
/// their number.
pub(super) fn is_about_open_files(message: &str) -> bool {
    [libc::EMFILE, libc::ENFILE].iter().any(|code| message.contains(&format!("(os error {code})")))
}

/// `message`, with what to do if it is about too many open files, or too large ones.
pub(super) fn explained(message: &str) -> String {
    if message.contains(&format!("(os error {})", libc::EFBIG)) {
        return format!(
            "{message}\n  help: raise the limit of file sizes (ulimit -f), or use --fabric tcp"
        );
    }
    if !is_about_open_files(message) {
        return message.to_string();
    }
    let limit = open_files().map_or_else(|_| "?".to_string(), |limit| limit.rlim_max.to_string());
    format!(
        "{message}\n  help: each process may have {limit} files open; raise this limit (ulimit -n), or \
         use fewer --processes or --workers"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_open_files_are_explained() {
        let other = io::Error::from_raw_os_error(libc::ENOSPC).to_string();
        assert_eq!(explained(&other), other);
        let words = explained(&io::Error::from_raw_os_error(libc::EFBIG).to_string());
        assert!(words.contains("(ulimit -f)"), "{words}");
        let error = io::Error::from_raw_os_error(libc::EMFILE).to_string();
        let words = explained(&error);
        assert!(words.starts_with(&error) && words.contains("(ulimit -n)"), "{words}");
        let limit = open_files().unwrap().rlim_max;
        assert!(words.contains(&format!("may have {limit} files")), "{words}");
    }

    #[test]
    fn the_limit_is_raised_to_what_the_system_allows() {
        raise_open_files().unwrap();
        let limit = open_files().unwrap();
        assert_eq!(limit.rlim_cur, limit.rlim_max);
    }
}
