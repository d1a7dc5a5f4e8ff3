//! The node of a logical plan that assigns windows: TUMBLE, HOP, CUMULATE or SESSION in FROM.

use datafusion_common::DFSchemaRef;
use datafusion_expr::UserDefinedLogicalNodeCore;
use millstream_contract::plan::Window;

use crate::syntax::durations::duration;
use crate::syntax::prelude::*;

/// The columns that a window function adds.
pub(crate) const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// The type of all of them.
pub(crate) const WINDOW_TYPE: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

/// The window that each row is assigned to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Assignment {
    /// The time column, by its position in the input.
    pub(crate) time: usize,
    /// Of sessions, [`Session::partition`](millstream_contract::plan::Session::partition) says
    /// nothing yet: which keys a query groups by is decided above.
    pub(crate) window: Window,
    /// PARTITION BY, which SESSION has: columns of the input.
    pub(crate) partition: Vec<usize>,
    /// Of `DESCRIPTOR(…)`, for messages.
    pub(crate) place: Option<Span>,
}

/// Assigns each row its windows: the input's columns and [`WINDOW_COLUMNS`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct WindowNode {
    pub(crate) input: LogicalPlan,
    pub(crate) assignment: Assignment,
    schema: DFSchemaRef,
}

/// Methods of a node of our own over one input, without expressions; they are without order.
macro_rules! over_one_input {
    () => {
        fn inputs(&self) -> Vec<&LogicalPlan> {
            vec![&self.input]
        }

        fn schema(&self) -> &datafusion_common::DFSchemaRef {
            &self.schema
        }

        fn expressions(&self) -> Vec<Expr> {
            vec![]
        }
    };
    ($node:ident) => {
        impl PartialOrd for $node {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                (self == other).then_some(std::cmp::Ordering::Equal)
            }
        }
    };
}
pub(crate) use over_one_input;

over_one_input!(WindowNode);

impl WindowNode {
    pub(crate) fn new(input: LogicalPlan, assignment: Assignment) -> DfResult<WindowNode> {
        let mut fields: Vec<_> =
            input.schema().iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
        for name in WINDOW_COLUMNS {
            fields.push((None, Arc::new(Field::new(name, WINDOW_TYPE, false))));
        }
        let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
        Ok(WindowNode { input, assignment, schema })
    }
}

impl UserDefinedLogicalNodeCore for WindowNode {
    fn name(&self) -> &str {
        match self.assignment.window {
            Window::Tumble(_) => "Tumble",
            Window::Hop(_) => "Hop",
            Window::Cumulate(_) => "Cumulate",
            Window::Session(_) => "Session",
            Window::Interval(_) => "Interval",
        }
    }

    over_one_input!();

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = |at: usize| self.input.schema().field(at).name().as_str();
        write!(f, "{}: time={}", self.name(), column(self.assignment.time))?;
        let offset_us = match &self.assignment.window {
            Window::Tumble(tumble) => {
                write!(f, " size={}", duration(tumble.size_us))?;
                tumble.offset_us
            }
            Window::Hop(hop) => {
                write!(f, " slide={} size={}", duration(hop.slide_us), duration(hop.size_us))?;
                hop.offset_us
            }
            Window::Cumulate(cumulate) => {
                let (step, size) = (duration(cumulate.step_us), duration(cumulate.size_us));
                write!(f, " step={step} size={size}")?;
                cumulate.offset_us
            }
            Window::Session(session) => {
                let keys: Vec<_> = self.assignment.partition.iter().map(|at| column(*at)).collect();
                if !keys.is_empty() {
                    write!(f, " partition by {}", keys.join(", "))?;
                }
                write!(f, " gap={}", duration(session.gap_us))?;
                0
            }
            Window::Interval(_) => 0,
        };
        if offset_us != 0 {
            write!(f, " offset={}", duration(offset_us))?;
        }
        Ok(())
    }

    fn with_exprs_and_inputs(
        &self,
        _: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> DfResult<WindowNode> {
        let input = inputs.pop().unwrap_or_else(|| self.input.clone());
        WindowNode::new(input, self.assignment.clone())
    }
}
