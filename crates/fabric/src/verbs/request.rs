//! Conversion of requests from the contract's form into libibverbs'.

use millstream_verbs as ibv;
use millstream_verbs::{InlineData, ReceiveRequest, SendRequest, Sge};

use crate::error::Result;
use crate::memory::RemoteAddress;
use crate::work::{Destination, Operation, Receive, Source, WorkRequest};

/// Requests that are handed to the library at a time, with one doorbell.
pub(super) const BATCH: usize = 16;

/// Arrays that a request refers to.
#[derive(Default)]
pub(super) struct Parts<'a> {
    piece: [Sge; 1],
    inline: Option<[InlineData<'a>; 1]>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(operation: &Operation<'a>) -> Parts<'a> {
        match operation {
            Operation::Write { source, .. } | Operation::Send { source, .. } => {
                Parts::of_source(source)
            }
            Operation::Read { into, .. }
            | Operation::FetchAdd { into, .. }
            | Operation::CompareSwap { into, .. } => {
                Parts { piece: [destination_piece(into)], inline: None }
            }
        }
    }

    pub(super) fn of_source(source: &Source<'a>) -> Parts<'a> {
        match *source {
            Source::Inline(bytes) => {
                Parts { piece: [Sge::default()], inline: Some([InlineData::new(bytes)]) }
            }
            Source::Region { region, offset, bytes } => {
                let address = region.as_ptr() as u64 + offset as u64;
                let local_key = region.local_key();
                Parts { piece: [Sge { address, bytes: bytes as u32, local_key }], inline: None }
            }
        }
    }

    /// A length of 0 may mean 2 GiB to a device: no bytes are no piece.
    fn pieces(&self) -> &[Sge] {
        if self.piece[0].bytes == 0 { &[] } else { &self.piece }
    }

    fn with_inline<'b>(&'b self, request: SendRequest<'b>) -> SendRequest<'b> {
        match &self.inline {
            Some(data) => request.inline(data),
            None => request,
        }
    }

    pub(super) fn request<'b>(&'b self, request: &WorkRequest<'_>) -> SendRequest<'b> {
        let id = request.id;
        let built = match request.operation {
            Operation::Write { to, immediate, .. } => {
                let write = self.with_inline(SendRequest::write(id, self.pieces(), place(to)));
                with_immediate(write, immediate)
            }
            Operation::Send { immediate, .. } => self.send(id, immediate),
            Operation::Read { from, .. } => SendRequest::read(id, self.pieces(), place(from)),
            Operation::FetchAdd { at, add, .. } => {
                SendRequest::fetch_and_add(id, &self.piece, place(at), add)
            }
            Operation::CompareSwap { at, expected, new, .. } => {
                SendRequest::compare_and_swap(id, &self.piece, place(at), expected, new)
            }
        };
        if request.signalled { built.signaled() } else { built }
    }

    pub(super) fn send<'b>(&'b self, id: u64, immediate: Option<u32>) -> SendRequest<'b> {
        with_immediate(self.with_inline(SendRequest::send(id, self.pieces())), immediate)
    }
}

fn with_immediate<'a>(request: SendRequest<'a>, immediate: Option<u32>) -> SendRequest<'a> {
    match immediate {
        Some(value) => request.with_immediate(value),
        None => request,
    }
}

fn place(address: RemoteAddress) -> ibv::RemoteAddress {
    ibv::RemoteAddress { address: address.address, remote_key: address.key }
}

fn destination_piece(into: &Destination<'_>) -> Sge {
    Sge {
        address: into.region.as_ptr() as u64 + into.offset as u64,
        bytes: into.bytes as u32,
        local_key: into.region.local_key(),
    }
}

/// Checks that a receive's buffer belongs to device `device`.
pub(super) fn check_receive(device: u32) -> impl Fn(&Receive<'_>) -> Result<()> {
    move |receive| match &receive.buffer {
        Some(buffer) => buffer.check(device),
        None => Ok(()),
    }
}

/// Posts receives that were checked, a batch at a time; how many were posted, and why not all.
pub(super) fn post_receives(
    post: impl Fn(&mut [ReceiveRequest<'_>]) -> std::result::Result<(), ibv::PostError>,
    receives: &[Receive<'_>],
) -> std::result::Result<(), ibv::PostError> {
    for (number, batch) in receives.chunks(BATCH).enumerate() {
        let pieces: [[Sge; 1]; BATCH] = std::array::from_fn(|i| {
            let buffer = batch.get(i).and_then(|receive| receive.buffer.as_ref());
            [buffer.map_or(Sge::default(), destination_piece)]
        });
        let mut list: [ReceiveRequest<'_>; BATCH] = std::array::from_fn(|i| {
            let id = batch.get(i).map_or(0, |receive| receive.id);
            // As in `Parts::pieces`.
            ReceiveRequest::new(id, if pieces[i][0].bytes == 0 { &[] } else { &pieces[i] })
        });
        post(&mut list[..batch.len()])
            .map_err(|error| ibv::PostError { posted: number * BATCH + error.posted, ..error })?;
    }
    Ok(())
}
