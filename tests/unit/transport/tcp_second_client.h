/* SPDX-License-Identifier: Apache-2.0
 * A second implementation of transport tcp's wire, in C on OpenSSL, written from
 * docs/transports.md alone: one connection of a rank that connects. Tests only; blocks. */
#ifndef PARALLAX_TESTS_UNIT_TRANSPORT_TCP_SECOND_CLIENT_H_
#define PARALLAX_TESTS_UNIT_TRANSPORT_TCP_SECOND_CLIENT_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct second_client {
  int socket; /* connected; the caller's */
  const char* secret;
  unsigned long long job;
  const unsigned char* salt; /* 32 bytes: of the rank that listens */
  const char* identity;
  int security;          /* 0 encrypt, 1 authenticate, 2 handshake */
  int type_wrong;        /* 0, or of a frame without a body that it sends ahead of the message */
  unsigned answers;      /* messages that it waits for; what they cost it gives back */
  unsigned credit_wrong; /* what it gives back with its message, though it was sent nothing */
};

/* Joins, sends the message, waits for all answers, of which the last goes to `answer`, and says
 * goodbye. 0, or the number of the step that failed. */
int second_client_exchange(const struct second_client* client, const char* message,
                           unsigned char* answer, size_t* answer_bytes);

#ifdef __cplusplus
}
#endif

#endif /* PARALLAX_TESTS_UNIT_TRANSPORT_TCP_SECOND_CLIENT_H_ */
