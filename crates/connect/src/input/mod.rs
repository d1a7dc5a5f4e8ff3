//! Bytes of a file, wherever they come from: memory, a regular file, a packed one, a pipe.

mod anywhere;
mod gzip;
mod missing;
mod packed;
mod pipe;
mod regular;

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use millstream_contract::{Error, Result};

pub(crate) use self::anywhere::Anywhere;
pub(crate) use self::missing::missing_help;
pub(crate) use self::packed::{MaybePacked, Packing, Unpacked, may_unpack_to};
pub(crate) use self::pipe::Pipe;
pub use self::pipe::{AwaitedPipe, awaited_pipes, give_up_pipes};
pub(crate) use self::regular::{
    FileExtent, HEAD_BYTES, Regular, begun_at, check_same, fingerprint, open, opened, read_at,
};

/// Where the bytes come from.
pub(crate) enum Input {
    /// Bytes in memory, read from front to back.
    Memory(io::Cursor<Arc<[u8]>>),
    /// A file on disk, which may grow meanwhile.
    File(Regular),
    /// Unpacked bytes of a packed file, read from front to back.
    Packed { bytes: Box<dyn Read + Send>, read: u64 },
    /// Reads must take what comes.
    Pipe(Pipe),
}

impl Input {
    /// For tests and fuzzing.
    pub(crate) fn memory(bytes: &[u8]) -> Input {
        Input::Memory(io::Cursor::new(bytes.into()))
    }

    /// Appends what one read gives, at most `missing` bytes. From memory and files it is all of
    /// them, unless the input ends before.
    pub(crate) fn read(
        &mut self,
        missing: usize,
        path: &str,
        buffer: &mut Vec<u8>,
    ) -> Result<usize> {
        let got = match self {
            Input::File(file) => return file.read(missing, buffer),
            Input::Memory(bytes) => {
                buffer.reserve_exact(missing);
                bytes.take(missing as u64).read_to_end(buffer)
            }
            Input::Packed { bytes, read } => {
                buffer.reserve_exact(missing);
                let got = bytes.take(missing as u64).read_to_end(buffer);
                *read += *got.as_ref().unwrap_or(&0) as u64;
                got
            }
            Input::Pipe(pipe) => read_some(pipe, missing, buffer),
        };
        got.map_err(|error| io_error(Path::new(path), &error))
    }

    /// Goes on at this offset.
    ///
    /// # Errors
    ///
    /// A pipe gives its bytes once, and in order.
    pub(crate) fn seek(&mut self, offset: u64, path: &str) -> Result<()> {
        match self {
            Input::File(file) => file.seek(offset),
            Input::Memory(bytes) => bytes
                .seek(SeekFrom::Start(offset))
                .map(drop)
                .map_err(|error| io_error(Path::new(path), &error)),
            Input::Packed { bytes, read } if *read <= offset => {
                let between = offset - *read;
                let left_out = io::copy(&mut bytes.take(between), &mut io::sink());
                let left_out = left_out.map_err(|error| io_error(Path::new(path), &error))?;
                *read = offset;
                match left_out == between {
                    true => Ok(()),
                    false => Err(Error::Io {
                        place: path.to_string(),
                        message: format!("it ends before offset {offset}, where reading goes on"),
                        help: "leave a file as it is until it has been read".into(),
                    }),
                }
            }
            Input::Packed { .. } => {
                Err(Error::Internal("a packed file is read from front to back".into()))
            }
            Input::Pipe(_) => Err(Error::Io {
                place: path.to_string(),
                message: "a pipe cannot be read on from a position".into(),
                help: "write to a file, and read that".into(),
            }),
        }
    }
}

/// Appends what one read gives, at most `missing` bytes.
fn read_some(input: &mut impl Read, missing: usize, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let before = buffer.len();
    buffer.resize(before + missing, 0);
    let got = loop {
        match input.read(&mut buffer[before..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            got => break got,
        }
    };
    buffer.truncate(before + got.as_ref().map_or(0, |n| *n));
    got
}

/// The system's error about a file, with advice.
pub fn io_error(path: &Path, error: &io::Error) -> Error {
    let help = match error.kind() {
        io::ErrorKind::NotFound => missing_help(path, "check the path"),
        io::ErrorKind::PermissionDenied => {
            "make it, and the directories around it, readable for this user (chmod)".to_string()
        }
        io::ErrorKind::ConnectionRefused => {
            "start the sender first, or wait for it with the option 'listen'".to_string()
        }
        io::ErrorKind::ConnectionReset => {
            "a sender that ends well closes the connection; what was under way is lost".to_string()
        }
        io::ErrorKind::AddrInUse => {
            "end the program that listens there, or take another port".into()
        }
        _ => String::new(),
    };
    Error::Io { place: path.display().to_string(), message: error.to_string(), help }
}

/// A file's path, for messages, shared by all that is read of it.
pub(crate) type Name = Arc<str>;
