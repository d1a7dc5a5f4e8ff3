//! Tables and views of the catalog as DataFusion's planner sees them.

use std::borrow::Cow;

use datafusion_expr::TableSource;

use crate::names::catalog::{TableEntry, ViewEntry};
use crate::syntax::prelude::*;

/// A table as DataFusion's planner sees it.
pub(crate) struct TableHandle {
    pub(crate) entry: Arc<TableEntry>,
    schema: SchemaRef,
}

impl TableHandle {
    /// `columns` are the names of those that are shown, if not all are.
    pub(crate) fn new(entry: Arc<TableEntry>, columns: Option<&HashSet<String>>) -> TableHandle {
        let mut schema = entry.schema();
        if let Some(columns) = columns {
            let fields = schema.fields().iter().filter(|field| columns.contains(field.name()));
            schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        }
        TableHandle { entry, schema }
    }
}

impl TableSource for TableHandle {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// A view, which is planned in place of its name.
pub(crate) struct ViewHandle {
    /// `None`: only its columns count.
    view: Option<Arc<ViewEntry>>,
    schema: SchemaRef,
}

impl ViewHandle {
    /// `columns` are the names of the shown columns; `None` shows all. With `columns`, the plan
    /// below the view is hidden.
    pub(crate) fn new(view: Arc<ViewEntry>, columns: Option<&HashSet<String>>) -> ViewHandle {
        let all = view.plan.schema().as_arrow();
        let Some(columns) = columns else {
            let schema = Arc::new(all.clone());
            return ViewHandle { view: Some(view), schema };
        };
        let fields = all.fields().iter().filter(|field| columns.contains(field.name()));
        let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        ViewHandle { view: None, schema }
    }
}

impl TableSource for ViewHandle {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        self.view.as_ref().map(|view| Cow::Borrowed(&view.plan))
    }
}
