// SPDX-License-Identifier: Apache-2.0
// What Clang's thread safety analysis reads: which lock guards a member, what a function expects to
// be held, takes or gives back. Clang checks it at compile time (cmake/flags.cmake); for any other
// compiler each macro is nothing. The locks that carry them are those of base/mutex.h.
//
// Not followed by the analysis: the inside of constructors and destructors, when nobody else has
// the object. A lambda is a function of its own, which says what it requires, and can be called
// where that is held but not handed to a wait: a wait stands in a loop.
#ifndef PARALLAX_BASE_THREAD_ANNOTATIONS_H_
#define PARALLAX_BASE_THREAD_ANNOTATIONS_H_

#if defined(__clang__)
#define PARALLAX_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define PARALLAX_THREAD_ANNOTATION(x)
#endif

// Of a class: it is a lock; its objects hold one while they live.
#define PARALLAX_CAPABILITY(name) PARALLAX_THREAD_ANNOTATION(capability(name))
#define PARALLAX_SCOPED_CAPABILITY PARALLAX_THREAD_ANNOTATION(scoped_lockable)

// Of a variable: read and written with this lock alone; of a pointer: so is what it points to.
#define PARALLAX_GUARDED_BY(lock) PARALLAX_THREAD_ANNOTATION(guarded_by(lock))
#define PARALLAX_PT_GUARDED_BY(lock) PARALLAX_THREAD_ANNOTATION(pt_guarded_by(lock))

// Of a lock: where both are held, it was taken first, or second.
#define PARALLAX_ACQUIRED_BEFORE(...) PARALLAX_THREAD_ANNOTATION(acquired_before(__VA_ARGS__))
#define PARALLAX_ACQUIRED_AFTER(...) PARALLAX_THREAD_ANNOTATION(acquired_after(__VA_ARGS__))

// Of a function: its caller holds the locks, must not hold them; it takes them, gives them back.
// Without an argument: the object itself.
#define PARALLAX_REQUIRES(...) PARALLAX_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define PARALLAX_EXCLUDES(...) PARALLAX_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define PARALLAX_ACQUIRE(...) PARALLAX_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define PARALLAX_RELEASE(...) PARALLAX_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

// Of a function that the analysis cannot follow. The line above it says why.
#define PARALLAX_NO_THREAD_SAFETY_ANALYSIS PARALLAX_THREAD_ANNOTATION(no_thread_safety_analysis)

#endif  // PARALLAX_BASE_THREAD_ANNOTATIONS_H_
