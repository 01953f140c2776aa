#!/bin/bash
srun hostname
