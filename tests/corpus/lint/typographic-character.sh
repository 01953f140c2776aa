#!/bin/bash
srun –-label hostname
