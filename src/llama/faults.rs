//! The handlers of signals that turn faults of llama.cpp into failed calls (`faults.cpp`).

use crate::process::Shared;

unsafe extern "C" {
    fn llb_faults_install();
    fn llb_faults_remove();
}

/// How many [`FaultHandlers`] there are.
static USERS: Shared<usize> = Shared::new(0);

/// The handlers are installed while one of these lives.
pub(super) struct FaultHandlers(());

impl FaultHandlers {
    /// On any thread, before the calls that may fault.
    pub(super) fn install() -> FaultHandlers {
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
