//! Signal handlers that turn faults of llama.cpp into failed calls (`faults.cpp`).

use crate::process::Shared;

unsafe extern "C" {
    fn llb_faults_install();
    fn llb_faults_remove();
    fn llb_faults_add_code(address: usize);
}

/// The number of live [`FaultHandlers`].
static USERS: Shared<usize> = Shared::new(0);

/// Keeps the handlers installed until the last one is dropped.
pub(crate) struct FaultHandlers(());

/// Treats faults in the image that has code at this address as faults of llama.cpp.
pub(crate) fn add_code(address: usize) {
    // SAFETY: only reads the list of images.
    unsafe { llb_faults_add_code(address) };
}

impl FaultHandlers {
    /// Installs the handlers. Any thread may call this, before the calls that may fault.
    pub(crate) fn install() -> FaultHandlers {
        let mut users = USERS.lock();
        if *users == 0 {
            // SAFETY: takes nothing; the lock keeps other threads out.
            unsafe { llb_faults_install() };
        }
        *users += 1;
        FaultHandlers(())
    }
}

impl Drop for FaultHandlers {
    fn drop(&mut self) {
        let mut users = USERS.lock();
        *users -= 1;
        if *users == 0 {
            // SAFETY: as above.
            unsafe { llb_faults_remove() };
        }
    }
}
