//! The memory plan: what a run will take, counted before anything is loaded, against a limit.
//!
//! Owns: the sum, its table for people, the verdict and the sentence when it does not fit.
//! Always true: bytes that must be in memory at once are counted at their largest; bytes that stay in a file and are
//! read row by row are listed apart.
//! Not here: how large each part is (`model::load` knows).

use std::fmt;

use super::ledger::size;
use crate::error::{Error, Result};

/// Where a part lies while the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In memory, all of it once it was touched.
    Memory,
    /// In the host's pinned memory, beside a device whose memory the plan is of.
    Host,
    /// In its file; pages that were read may stay cached, the system takes them back when it needs them.
    File,
}

/// One line of the plan.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Part {
    /// What it is.
    pub name: String,
    /// Its size.
    pub bytes: usize,
    /// Where it lies.
    pub place: Place,
}

/// What a run takes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Plan {
    /// Largest part first is not promised; the order is that of a reader's questions.
    pub parts: Vec<Part>,
    /// Tokens of context it is for.
    pub context: usize,
    /// Bytes allowed, if there is a limit.
    pub limit: Option<usize>,
    /// Sum of the parts that lie in memory.
    total: usize,
}

impl Plan {
    /// An empty plan for a context.
    pub fn new(context: usize, limit: Option<usize>) -> Plan {
        Plan { parts: Vec::new(), context, limit, total: 0 }
    }

    /// Adds a part that lies in memory.
    pub fn memory(&mut self, name: impl Into<String>, bytes: usize) {
        self.total = self.total.saturating_add(bytes);
        self.parts.push(Part { name: name.into(), bytes, place: Place::Memory });
    }

    /// Adds a part that lies in the host's memory and not in the device's.
    pub fn host(&mut self, name: impl Into<String>, bytes: usize) {
        self.parts.push(Part { name: name.into(), bytes, place: Place::Host });
    }

    /// Adds a part that stays in its file.
    pub fn file(&mut self, name: impl Into<String>, bytes: usize) {
        self.parts.push(Part { name: name.into(), bytes, place: Place::File });
    }

    /// Bytes that lie in memory together.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Whether the plan keeps the limit; `fitting` is the largest context that would, if any does.
    ///
    /// # Errors
    /// `InsufficientMemory`, saying by how much and which context would fit.
    pub fn check(&self, fitting: impl FnOnce(usize) -> Option<usize>) -> Result<()> {
        let Some(limit) = self.limit.filter(|&limit| self.total() > limit) else { return Ok(()) };
        let advice = match fitting(limit) {
            Some(context) => format!("a context of {context} tokens would fit: use --max-seq {context}"),
            None => "no context fits: raise the limit or use a smaller or more quantised model".to_string(),
        };
        Err(Error::InsufficientMemory(format!(
            "the plan for a context of {} tokens takes {}, which is {} more than the limit of {}; {advice}",
            self.context,
            size(self.total()),
            size(self.total() - limit),
            size(limit),
        )))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory plan for a context of {} tokens", self.context)?;
        for part in &self.parts {
            let note = match part.place {
                Place::Memory => "",
                Place::Host => "  in the host's memory",
                Place::File => "  stays in its file",
            };
            writeln!(f, "  {:<28}{:>12}{note}", part.name, size(part.bytes))?;
        }
        writeln!(f, "  {:<28}{:>12}", "total in memory", size(self.total()))?;
        match self.limit {
            None => Ok(()),
            Some(limit) if limit >= self.total() => {
                writeln!(f, "  {:<28}{:>12}  {} left", "limit", size(limit), size(limit - self.total()))
            }
            Some(limit) => {
                writeln!(f, "  {:<28}{:>12}  {} too little", "limit", size(limit), size(self.total() - limit))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(limit: usize) -> Plan {
        let mut plan = Plan::new(4096, Some(limit));
        plan.memory("weights", 3 << 30);
        plan.memory("keys and values", 1 << 30);
        plan.file("n-gram table", 50 << 30);
        plan
    }

    #[test]
    fn a_plan_that_does_not_fit_says_by_how_much_and_what_would() {
        assert!(plan(4 << 30).check(|_| None).is_ok());
        let refused = plan((4 << 30) - (512 << 20)).check(|limit| (limit > 0).then_some(2048)).unwrap_err().to_string();
        assert!(refused.contains("512.00 MiB more") && refused.contains("--max-seq 2048"), "{refused}");
        let hopeless = plan(1 << 30).check(|_| None).unwrap_err().to_string();
        assert!(hopeless.contains("3.00 GiB more") && hopeless.contains("no context fits"), "{hopeless}");
    }

    #[test]
    fn what_stays_in_its_file_is_listed_but_not_counted() {
        let text = plan(5 << 30).to_string();
        assert!(text.contains("n-gram table") && text.contains("50.00 GiB  stays in its file"), "{text}");
        assert!(text.contains("total in memory") && text.contains("1.00 GiB left"), "{text}");
    }
}
