//! Python bindings of tpcapture: converts arguments, releases the GIL, maps errors. Nothing else.

mod builtin;
mod errors;
mod described;
mod exchange;
mod interface;
mod tensor;
mod arguments;
mod host;
mod fire;
mod hook;
mod ray;
mod control;
mod run;
mod comparison;

use pyo3::prelude::*;

/// The native half of the package `tpcapture`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("CaptureError", py.get_type::<errors::CaptureError>())?;
    module.add_class::<hook::TapState>()?;
    module.add_class::<run::Run>()?;
    module.add("capture", hook::CAPTURE.build(py, None, Some(module))?)?;
    module.add("step", hook::STEP.build(py, None, Some(module))?)?;
    module.add_function(wrap_pyfunction!(hook::make_tap, module)?)?;
    module.add_function(wrap_pyfunction!(hook::tap_state, module)?)?;
    module.add_function(wrap_pyfunction!(control::start, module)?)?;
    module.add_function(wrap_pyfunction!(control::keeps_compiled_taps, module)?)?;
    module.add_function(wrap_pyfunction!(control::matching, module)?)?;
    module.add_function(wrap_pyfunction!(control::run_now, module)?)?;
    module.add_function(wrap_pyfunction!(control::say, module)?)?;
    module.add_function(wrap_pyfunction!(control::prepare, module)?)?;
    module.add_function(wrap_pyfunction!(control::switch_on, module)?)?;
    module.add_function(wrap_pyfunction!(control::switch_off, module)?)?;
    module.add_function(wrap_pyfunction!(control::flush, module)?)?;
    module.add_function(wrap_pyfunction!(control::status, module)?)?;
    module.add_function(wrap_pyfunction!(control::command, module)?)?;
    module.add_function(wrap_pyfunction!(comparison::compare, module)?)?;
    module.add_function(wrap_pyfunction!(ray::spread_list, module)?)?;
    module.add_function(wrap_pyfunction!(ray::spread_fetch, module)?)?;
    module.add_function(wrap_pyfunction!(ray::spread_work, module)?)?;
    module.add_function(wrap_pyfunction!(comparison::page, module)?)?;
    Ok(())
}
