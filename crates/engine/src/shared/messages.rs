//! Messages from other processes: each goes to the intake, or to the gather of its output.

use super::Shared;
use crate::error::{Error, Result};
use crate::gather::{BatchRows, Gather};
use crate::network::{Freed, Head, Kind, LAST, decode_rows, merge_times};
use crate::rows::Rows;
use millstream_operators::operator::RowTimes;
use millstream_operators::stamped::BatchPlace;
use millstream_operators::windowing::WindowId;

impl Shared {
    /// Takes in a message of another process; returns freed segments. An internal error describes a
    /// wrong message.
    pub(crate) fn take_message(
        &self,
        process: usize,
        head: Head,
        body: &[u8],
    ) -> Result<Option<Freed>> {
        let Some(net) = &self.net else { return Ok(None) };
        let leader = || {
            let leader = head.id as usize;
            let its = leader / self.settings.workers == process;
            let broken = || Error::Internal(format!("what leader {leader} has to say"));
            its.then_some(leader).ok_or_else(broken)
        };
        match head.kind {
            Kind::Credit => {
                leader()?;
                let stage = self.stages.get(usize::from(head.stage));
                stage.inspect(|stage| stage.merging.add(&merge_times(&head)));
                return net.credit(&head).map(Some);
            }
            Kind::Stamp => self.intake.stamp_other(&head)?,
            Kind::Ended | Kind::ReadTo => self.note_end(process, &head)?,
            Kind::Drain => self.begin_to_drain(false)?,
            Kind::Join if process == 0 => self.note_join(&head, body)?,
            Kind::Progress | Kind::Senders | Kind::Notice => self.hear(process, &head, body)?,
            Kind::WindowRows if net.is_coordinator() => {
                let at = (head.count as usize, WindowId::from_word(head.rows_of));
                // Rows bring their times along, if needed.
                let rows = (Rows::of_final(decode_rows(body)?), &RowTimes::Same(None));
                let gather = self.gather(&head)?;
                let came = gather.window_rows(leader()?, at, rows, head.has(LAST));
                self.ends(gather.output(), came)?;
                self.check_gathered()?;
            }
            Kind::BatchRows if net.is_coordinator() => {
                let (gather, place) = (self.gather(&head)?, self.place(&head)?);
                let rows = BatchRows {
                    rows: Rows::of_final(decode_rows(body)?),
                    then: None,
                    last: head.has(LAST),
                };
                let came = gather.batch_rows(0, place, rows, &self.intake.ended_splits());
                self.ends(gather.output(), came)?;
                self.check_gathered()?;
            }
            Kind::BatchError if net.is_coordinator() => {
                let unknown = || Error::Internal("an error that does not say what it is".into());
                let error = Error::of_message(body).ok_or_else(unknown)?;
                self.gather(&head)?.note_failed(self.place(&head)?, error);
            }
            Kind::Fired if net.is_coordinator() => {
                let stage = head.count as usize;
                self.gather(&head)?.advance(leader()?, stage, head.watermark)?;
            }
            Kind::Fired => {
                self.gather(&head)?.note_fired(head.count as usize, head.watermark)?;
                self.wake_all();
            }
            Kind::Written | Kind::Awaited => self.note_chunk(&head)?,
            Kind::Enough if process == 0 => {
                let output = self.gather(&head)?.output();
                self.end_output(output)?;
                if head.has(LAST) {
                    self.end_outputs()?;
                }
            }
            _ => self.take_cut_message(process, &head, body)?,
        }
        Ok(None)
    }

    /// Another process tells of a source, or the user of one.
    fn hear(&self, process: usize, head: &Head, body: &[u8]) -> Result<()> {
        match head.kind {
            Kind::Progress => self.intake.note_progress(process, head),
            Kind::Senders => self.intake.note_senders(process, head, body),
            _ => {
                self.intake.notices().tell(String::from_utf8_lossy(body).into_owned());
                Ok(())
            }
        }
    }

    /// Another process has read so much of a split, and reads no more: rows may have waited.
    fn note_end(&self, process: usize, head: &Head) -> Result<()> {
        match head.kind {
            Kind::Ended => self.intake.ended_elsewhere(head)?,
            _ => self.intake.note_read_to(process, head)?,
        }
        self.queue_batches();
        Ok(())
    }

    /// Notes that another process's chunk comes next, or is awaited by another process.
    fn note_chunk(&self, head: &Head) -> Result<()> {
        let chunk = (head.number, self.intake.checked(head)?);
        let gather = self.gather(head)?;
        match head.kind {
            Kind::Written => gather.note_written(chunk)?,
            _ => gather.note_request(chunk)?,
        }
        self.wake_all();
        Ok(())
    }

    /// The output that a message is about.
    fn gather(&self, head: &Head) -> Result<&Gather> {
        let output = usize::from(head.output);
        let unknown = || Error::Internal(format!("rows for output {output}, which is not there"));
        self.gathers.get(output).ok_or_else(unknown)
    }

    /// The batch that a message is about.
    fn place(&self, head: &Head) -> Result<BatchPlace> {
        let split = self.intake.checked(head)?;
        Ok(BatchPlace { sequence: head.number, split, part: head.count })
    }
}
