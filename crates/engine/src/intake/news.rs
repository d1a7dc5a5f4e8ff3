//! News of sources that go from process to process: notices for the user, and the word of senders.

use super::Intake;
use super::source::SourceIn;
use crate::error::{Error, Result};
use crate::network::{Head, Kind, Net};

impl Intake {
    /// Tells the user of a split, through the coordinator. Of a split that all processes read, the
    /// coordinator has the same notices.
    pub(super) fn tell_notice(&self, split: usize, notice: String) -> Result<()> {
        match &self.net {
            Some(net) if !net.is_coordinator() && !self.splits[split].by_chunk => {
                net.post(0, Head::new(Kind::Notice), notice.into_bytes())
            }
            _ => {
                self.notices.tell(notice);
                Ok(())
            }
        }
    }

    /// Tells the other processes of senders that have come or gone here.
    pub(super) fn tell_senders(&self, net: &Net) -> Result<()> {
        let word = |(source, of): (usize, &SourceIn)| Some((source, of.senders.as_ref()?.word()?));
        for (source, word) in self.sources.iter().enumerate().filter_map(word) {
            let head = Head { id: source as u32, ..Head::new(Kind::Senders) };
            let others = (0..net.place.processes).filter(|process| *process != net.place.process);
            others.into_iter().try_for_each(|process| net.post(process, head, word.clone()))?;
        }
        Ok(())
    }

    /// Another process tells of senders that have come or gone there.
    pub(crate) fn note_senders(&self, process: usize, head: &Head, word: &[u8]) -> Result<()> {
        let unknown = || Error::Internal(format!("word of source {}, which is not there", head.id));
        let source = self.sources.get(head.id as usize).ok_or_else(unknown)?;
        if let Some(senders) = &source.senders {
            senders.hear(process, word)?;
            // Splits without a sender may be idle now, or at their end.
            self.wake_all();
        }
        Ok(())
    }
}
